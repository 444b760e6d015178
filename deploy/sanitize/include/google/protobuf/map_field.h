// protobuf's own header, for builds with ThreadSanitizer. Under it, the header gives every map
// field two more members, which Debian's libprotobuf, built without it, does not have: the same
// object would have two layouts.
#include <memory>  // first: the standard library is to see that it is sanitized
#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
