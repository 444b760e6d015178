# Writes one .cc with Prometheus' files of deploy/monitoring, so that dexd needs no checkout.
# cmake -DDIR=… -DOUT=… -P embed_monitoring.cmake
file(GLOB _files RELATIVE ${DIR} ${DIR}/prometheus.yml ${DIR}/rules/*.yml)
list(SORT _files)
set(_out "// Made by embed_monitoring.cmake.\n#include \"deploy/standalone/monitoring.h\"\n\nnamespace dex::standalone {\n\nconst std::vector<std::pair<std::string, std::string>>& monitoring_files() {\n  static const std::vector<std::pair<std::string, std::string>> files = {\n")
foreach(_file ${_files})
  file(READ ${DIR}/${_file} _text)
  string(APPEND _out "      {\"${_file}\", R\"yaml(${_text})yaml\"},\n")
endforeach()
string(APPEND _out "  };\n  return files;\n}\n\n}  // namespace dex::standalone\n")
file(WRITE ${OUT} "${_out}")
