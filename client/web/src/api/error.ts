// What the gateway answers in place of a result (api.md §1, §7).
export class RpcError extends Error {
  constructor(
    message: string,
    readonly status: number, // HTTP; 0: the gateway was not reached
    readonly code: string = '', // the reason in lower case
    readonly category: 'USER' | 'SYSTEM' | 'CAPACITY' = 'SYSTEM',
    readonly retryable: boolean = true,
    readonly requestId: string = '',
    readonly param: string = '',
  ) {
    super(message);
    this.name = 'RpcError';
  }

  get needsKey(): boolean {
    return this.status === 401;
  }
}

interface ErrorBody {
  message?: string;
  code?: string;
  category?: string;
  retryable?: boolean;
  request_id?: string;
  param?: string | null;
}

const byStatus: Record<number, string> = {
  401: 'This gateway asks for an API key.',
  403: 'This key may not do that.',
  404: 'The gateway does not know this address.',
  413: 'That is more than the gateway takes.',
  429: 'Too many requests; try again shortly.',
  502: 'The gateway is not reachable.',
  503: 'The platform is not ready.',
  504: 'The answer took too long.',
};

export function errorOfBody(status: number, text: string): RpcError {
  let body: ErrorBody = {};
  try {
    body = (JSON.parse(text) as { error?: ErrorBody }).error ?? {};
  } catch {
    // A proxy's page, or nothing: the status has to do.
  }
  const category =
    body.category === 'USER' || body.category === 'CAPACITY'
      ? body.category
      : status >= 400 && status < 500 && status !== 429
        ? 'USER'
        : 'SYSTEM';
  return new RpcError(
    body.message || byStatus[status] || `The gateway answered with HTTP ${status}.`,
    status,
    body.code ?? '',
    category,
    body.retryable ?? (status === 429 || status >= 500),
    body.request_id ?? '',
    body.param ?? '',
  );
}

export function unreachable(cause: unknown): RpcError {
  const detail = cause instanceof Error && cause.message ? ` (${cause.message})` : '';
  return new RpcError(`The gateway could not be reached${detail}. Is it running?`, 0, 'unreachable', 'SYSTEM', true);
}

export function asRpcError(cause: unknown): RpcError {
  return cause instanceof RpcError ? cause : unreachable(cause);
}
