# Writes one .cc with the text of openapi.json, for the route that serves it.
# cmake -DTEXT=… -DOUT=… -P embed_openapi.cmake
file(READ ${TEXT} _text)
file(WRITE ${OUT} "// Made by embed_openapi.cmake.\n#include \"services/gateway/openai/routes.h\"\n\nnamespace dex::gateway::openai {\n\nstd::string_view openapi_text() {\n  return R\"openapi(${_text})openapi\";\n}\n\n}  // namespace dex::gateway::openai\n")
