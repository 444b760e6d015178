// The contract, from descriptors that protoc made of proto/: requests are read as strictly as the gateway reads them, and
// answers printed as it prints them (proto field names, defaults too).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { need, web } from './modules.mjs';

const { createFileRegistry, fromBinary, fromJson, toJson } = need('@bufbuild/protobuf');
const { FileDescriptorSetSchema } = need('@bufbuild/protobuf/wkt');

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(join(web, 'src/generated/dex.desc'))));

// "FineTuningService/GetFineTuningJob" → its method, or undefined.
export function methodOf(name) {
  const [service, rpc] = name.split('/');
  return registry.getService(`dex.v1.${service}`)?.methods.find((method) => method.name === rpc);
}

// Throws with what is wrong: a key that is not there, a value of another type.
export function check(message, json) {
  return fromJson(message, json, { registry, ignoreUnknownFields: false });
}

export function print(message, json) {
  return toJson(message, check(message, JSON.parse(JSON.stringify(json))), {
    registry,
    useProtoFieldName: true,
    alwaysEmitImplicit: true,
  });
}

export function messageOf(name) {
  return registry.getMessage(`dex.v1.${name}`);
}
