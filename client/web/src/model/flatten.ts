export interface Entry {
  path: string;
  value: string;
}

// A spec as path → value, as `--set` takes them and as the sources of an effective config are named. Lists are one value.
export function flatten(value: unknown, path = ''): Entry[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) {
    if (value.length === 0) return [];
    return [{ path, value: value.some((item) => typeof item === 'object') ? JSON.stringify(value) : value.join(', ') }];
  }
  if (typeof value === 'object') {
    const entries = Object.entries(value);
    return entries.flatMap(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key));
  }
  return [{ path, value: String(value) }];
}

// "CRITERION_THRESHOLD" under "…criterion" → "THRESHOLD": enum values without the prefix that says their field's name.
export function plainValue(path: string, value: string): string {
  if (!/^[A-Z][A-Z0-9_]+$/.test(value)) return value;
  const field = path.slice(path.lastIndexOf('.') + 1).toUpperCase();
  if (value.startsWith(`${field}_`)) return value.slice(field.length + 1);
  const known = ['LR_SCHEDULER', 'BRANCH_INIT', 'ENTROPY_UNIT', 'CONTRIBUTION_UNIT', 'GROUP_BY', 'ON_FAIL', 'ON_TRIP'];
  const prefix = known.find((name) => value.startsWith(`${name}_`));
  return prefix ? value.slice(prefix.length + 1) : value;
}

// What someone chose: everything whose source is not a preset, a default, or derived.
export function isOwn(source: string | undefined): boolean {
  return source === 'USER' || source === 'CLAMPED';
}
