// Writes what the dashboard knows of the contract, from proto/dex/v1: the types of every message as protobuf JSON has them
// (src/generated/…: proto field names, full enum names, int64 as text, times as RFC 3339 text; types only, no code), and
// generated/dex.desc, the descriptors that tests hold requests and answers against. Nothing it writes is committed.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const protos = join(here, '../../proto');
const out = join(here, 'src/generated');
const options = [
  'onlyTypes=true',
  'snakeToCamel=false', // field names as in the .proto, which is what the gateway prints
  'stringEnums=true',
  'enumsAsLiterals=true',
  'unrecognizedEnum=false',
  'forceLong=string',
  'useDate=string',
  'useOptionals=messages', // scalars are always printed, messages and `optional` fields may be absent
  'outputServices=none',
  'exportCommonSymbols=false',
  'importSuffix=',
].join(',');

const files = readdirSync(join(protos, 'dex/v1'))
  .filter((name) => name.endsWith('.proto'))
  .map((name) => `dex/v1/${name}`);
const made = join(out, 'made_from');
const inputs = JSON.stringify([options, files.map((file) => [file, readFileSync(join(protos, file), 'utf8')])]);
if (existsSync(made) && readFileSync(made, 'utf8') === inputs && existsSync(join(out, 'dex.desc'))) process.exit(0);

const plugin = join(here, 'node_modules/ts-proto/protoc-gen-ts_proto');
if (!existsSync(plugin)) {
  console.error(`${plugin} is not there; run: deploy/setup/all --only web`);
  process.exit(1);
}
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
execFileSync(
  'protoc',
  [
    `-I${protos}`,
    `--plugin=protoc-gen-ts_proto=${plugin}`,
    `--ts_proto_out=${out}`,
    `--ts_proto_opt=${options}`,
    '--include_imports',
    `--descriptor_set_out=${join(out, 'dex.desc')}`,
    ...files,
  ],
  { stdio: 'inherit' },
);
if (!statSync(join(out, 'dex/v1/finetuning.ts')).size) throw new Error('protoc wrote no types');
writeFileSync(made, inputs);
