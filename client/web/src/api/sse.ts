export interface SseEvent {
  event: string; // "message" where the stream names none
  id: string;
  data: string;
}

// Cuts a text/event-stream into events, whatever pieces it comes in. Comments (keep-alives) are left out.
export class SseParser {
  private rest = '';
  private event = '';
  private id = '';
  private data: string[] = [];

  push(piece: string): SseEvent[] {
    const events: SseEvent[] = [];
    this.rest += piece;
    let begin = 0;
    for (;;) {
      const end = this.lineEnd(begin);
      if (end < 0) break;
      this.line(this.rest.slice(begin, end), events);
      begin = end + (this.rest.startsWith('\r\n', end) ? 2 : 1);
    }
    this.rest = this.rest.slice(begin);
    return events;
  }

  // Where the line from `begin` ends; -1: not yet. A carriage return at the very end may be half of a CRLF.
  private lineEnd(begin: number): number {
    for (let i = begin; i < this.rest.length; i++) {
      const c = this.rest.charCodeAt(i);
      if (c === 10) return i;
      if (c === 13) return i + 1 < this.rest.length ? i : -1;
    }
    return -1;
  }

  private line(line: string, events: SseEvent[]) {
    if (line === '') {
      if (this.data.length > 0) events.push({ event: this.event || 'message', id: this.id, data: this.data.join('\n') });
      else if (this.event === 'end') events.push({ event: 'end', id: this.id, data: '' });
      this.event = '';
      this.data = [];
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id') this.id = value;
  }
}
