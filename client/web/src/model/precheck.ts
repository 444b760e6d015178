// A first look at a data file while its bytes go out, with the codes of the server (services/data/findings.h). Only what
// can be said without the server's parser; the server's own findings replace these, and are what counts.
export interface EarlyFinding {
  line: number; // 1-based; 0: the file as a whole
  code: string;
  severity: 'SEVERITY_ERROR' | 'SEVERITY_WARNING' | 'SEVERITY_INFO';
  message: string;
  hint: string;
  excerpt: string;
}

const roles = ['system', 'developer', 'user', 'assistant', 'tool'];
const cut = (text: string) => (text.length > 120 ? `${text.slice(0, 119)}…` : text);

type Fault = [code: string, message: string, hint: string, severity?: EarlyFinding['severity']];

function chatFault(messages: unknown): Fault | undefined {
  if (!Array.isArray(messages) || messages.length === 0) return ['wrong_type', '"messages" must be a list that is not empty', ''];
  for (const [i, message] of messages.entries()) {
    const role = (message as { role?: unknown } | null)?.role;
    if (typeof role !== 'string') return ['missing_key', `message ${i + 1} has no "role"`, 'every message needs role and content'];
    if (!roles.includes(role))
      return ['unknown_role', `the role "${cut(role)}" is not one of ${roles.join(', ')}`, `did you mean "${nearest(role)}"?`];
  }
  if (!messages.some((message) => (message as { role?: unknown }).role === 'assistant')) {
    return [
      'no_assistant_message',
      'no message is the assistant’s, so nothing would be learned',
      'add the answer as {"role": "assistant", …}',
    ];
  }
  return undefined;
}

function nearest(role: string): string {
  const known: Record<string, string> = { human: 'user', bot: 'assistant', gpt: 'assistant', model: 'assistant', ai: 'assistant' };
  return known[role.toLowerCase()] ?? roles.find((name) => name[0] === role[0]?.toLowerCase()) ?? 'user';
}

function rowFault(row: unknown): Fault | undefined {
  if (typeof row !== 'object' || row === null || Array.isArray(row))
    return ['not_an_object', 'the line is not a JSON object', 'one {…} a line'];
  const record = row as Record<string, unknown>;
  if ('messages' in record) return chatFault(record.messages);
  if ('prompt' in record || 'completion' in record) {
    for (const key of ['prompt', 'completion']) {
      if (!(key in record)) return ['missing_key', `"${key}" is missing`, 'such rows have prompt and completion'];
      if (typeof record[key] !== 'string') return ['wrong_type', `"${key}" must be text`, ''];
    }
    return record.completion === '' ? ['empty_content', 'the completion is empty', ''] : undefined;
  }
  if ('text' in record) return typeof record.text === 'string' ? undefined : ['wrong_type', '"text" must be text', ''];
  if ('input_ids' in record) return Array.isArray(record.input_ids) ? undefined : ['wrong_type', '"input_ids" must be a list', ''];
  if ('tokenizer_sha256' in record) return undefined;
  return ['missing_key', 'none of "messages", "prompt", "text", "input_ids" is there', 'each line needs one of these forms'];
}

export class Precheck {
  readonly findings: EarlyFinding[] = [];
  readonly counts = new Map<string, number>();
  rows = 0;
  private rest = '';
  private line = 0;
  private begun = false;
  private over = false;

  constructor(private readonly most = 200) {}

  add(text: string) {
    if (this.over) return;
    this.rest += text;
    if (!this.begun && this.rest !== '') this.start();
    if (this.over) return;
    const lines = this.rest.split('\n');
    this.rest = lines.pop()!;
    for (const line of lines) this.check(line);
  }

  end() {
    if (this.over) return;
    if (this.rest.trim() !== '') this.check(this.rest);
    if (!this.begun || (this.rows === 0 && this.findings.length === 0)) this.note(0, ['empty_file', 'there is not a single row', ''], '');
    this.over = true;
  }

  private start() {
    this.begun = true;
    if (this.rest.charCodeAt(0) === 0xfeff) {
      this.note(0, ['bom_removed', 'the file begins with a byte order mark; it is left out', '', 'SEVERITY_INFO'], '');
      this.rest = this.rest.slice(1);
    }
    if (this.rest.startsWith('[')) {
      this.whole(
        'json_array_file',
        'this is one JSON list, not JSON Lines',
        'dexctl files validate --fix OUT FILE turns it into one row a line',
      );
    } else if (this.rest.startsWith('PK\u0003') || this.rest.startsWith('\u001f')) {
      this.whole('compressed_file', 'the file is compressed', 'unpack it first');
    } else if (this.rest.slice(0, 64).includes('\u0000')) {
      this.whole('encoding_utf16', 'the file is not UTF-8', 'save it as UTF-8');
    }
  }

  private whole(code: string, message: string, hint: string) {
    this.note(0, [code, message, hint], '');
    this.over = true;
  }

  private check(raw: string) {
    this.line++;
    const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
    if (line.trim() === '') return this.note(this.line, ['blank_line', 'the line is empty', '', 'SEVERITY_WARNING'], '');
    let row: unknown;
    try {
      row = JSON.parse(line);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : '';
      return this.note(this.line, ['invalid_json', `the line is not JSON: ${cut(why)}`, 'each line is one JSON object'], line);
    }
    const fault = rowFault(row);
    if (fault) this.note(this.line, fault, line);
    else this.rows++;
  }

  private note(line: number, [code, message, hint, severity = 'SEVERITY_ERROR']: Fault, text: string) {
    this.counts.set(code, (this.counts.get(code) ?? 0) + 1);
    if (this.findings.length < this.most) this.findings.push({ line, code, severity, message, hint, excerpt: cut(text) });
  }
}
