import type { ComponentChildren } from 'preact';
import { count } from '@/model/format';
import { Badge } from './parts';

export interface FindingLike {
  line: number | string;
  code: string;
  severity: string;
  message: string;
  hint: string;
  excerpt: string;
  json_path?: string;
}

export function SeverityBadge({ severity }: { severity: string }) {
  if (severity === 'SEVERITY_ERROR')
    return (
      <Badge tone="bad" icon="cross">
        error
      </Badge>
    );
  if (severity === 'SEVERITY_WARNING')
    return (
      <Badge tone="warn" icon="warn">
        warning
      </Badge>
    );
  return (
    <Badge tone="info" icon="info">
      note
    </Badge>
  );
}

// What is wrong where, what to do about it, and the line itself (as text, whatever it holds).
export function Findings({ findings, more }: { findings: FindingLike[]; more?: ComponentChildren }) {
  return (
    <div>
      {findings.map((finding, i) => (
        <div class="finding" key={`${finding.line} ${finding.code} ${i}`}>
          <div class="where">{Number(finding.line) > 0 ? `line ${count(finding.line)}` : 'whole file'}</div>
          <div>
            <div class="row">
              <SeverityBadge severity={finding.severity} />
              <code>{finding.code}</code>
              {finding.json_path && <code class="muted">{finding.json_path}</code>}
            </div>
            <div>{finding.message}</div>
            {finding.hint && <div class="hint">{finding.hint}</div>}
            {finding.excerpt && <pre>{finding.excerpt}</pre>}
          </div>
        </div>
      ))}
      {more}
    </div>
  );
}
