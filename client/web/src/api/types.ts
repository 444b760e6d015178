// Every message of dex.v1 as the bridge speaks it (generated from proto/ by scripts/generate_types.mjs).
export type * from '@/generated/dex/v1/adapters';
export type * from '@/generated/dex/v1/admin';
export type * from '@/generated/dex/v1/evaluation';
export type * from '@/generated/dex/v1/evaluation_task';
export type * from '@/generated/dex/v1/events';
export type * from '@/generated/dex/v1/files';
export type * from '@/generated/dex/v1/finetuning';
export type * from '@/generated/dex/v1/inference';
export type * from '@/generated/dex/v1/models';

// A request names what it sets; everything else is the server's default.
export type Loose<T> = T extends (infer U)[] ? Loose<U>[] : T extends object ? { [K in keyof T]?: Loose<T[K]> | undefined } : T;
