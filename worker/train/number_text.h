#pragma once

#include <string>

namespace dex::train {

// A number for a sentence, about four significant digits and no zeros at the end: "2.2503",
// "0.0084", "31.26", "1024"; "8.0e-05" and "1.2e+07" beyond what reads well, "NaN" and "inf" as
// they are. For events and errors; data carries the numbers themselves.
std::string number_text(double value);

}  // namespace dex::train
