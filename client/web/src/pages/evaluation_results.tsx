import { useState } from 'preact/hooks';
import type { Evaluation, EvaluationResult, EvaluationRow, HeadTable } from '@/api/types';
import { CellMap } from '@/charts/cell_map';
import { Intervals, type IntervalSide } from '@/charts/intervals';
import { difference, dimsText, figuresOf, needleGrids, type Figure } from '@/model/evaluation_rows';
import { count, figure, num, percent, signed } from '@/model/format';
import { Select } from '@/ui/form';
import { Badge, Note } from '@/ui/parts';
import { taskName } from './evaluations';

type Difference = { delta?: number | undefined; delta_low?: number | undefined; delta_high?: number | undefined };

// A difference with its interval; nothing where there is none.
export function Delta({ row: { delta, delta_low, delta_high } }: { row: Difference }) {
  if (delta === undefined) return null;
  return (
    <>
      {signed(delta)}
      {delta_low !== undefined && (
        <span class="muted">
          {' '}
          ({signed(delta_low)} to {signed(delta_high)})
        </span>
      )}
    </>
  );
}

export function VerdictBadge({ verdict }: { verdict: string }) {
  if (verdict === 'VERDICT_BETTER')
    return (
      <Badge tone="good" icon="better">
        better
      </Badge>
    );
  if (verdict === 'VERDICT_WORSE')
    return (
      <Badge tone="bad" icon="worse">
        worse
      </Badge>
    );
  if (verdict === 'VERDICT_NO_DIFFERENCE') return <Badge icon="equal">no sure difference</Badge>;
  if (verdict === 'VERDICT_DIFFERENT')
    return (
      <Badge tone="info" icon="dot">
        different
      </Badge>
    );
  return null;
}

export function Results({ evaluation }: { evaluation: Evaluation }) {
  const base = evaluation.spec?.subjects[0]?.label ?? '';
  return (
    <div class="stack">
      {evaluation.results.map((result, i) => (
        <TaskResult key={i} result={result} base={base} />
      ))}
    </div>
  );
}

const rowsAtOnce = 40;

function TaskResult({ result, base }: { result: EvaluationResult; base: string }) {
  const [all, setAll] = useState(false);
  const figures = figuresOf(result);
  const overall = figures.filter((one) => Object.keys(one.dims).length === 0);
  const shown = all ? figures : overall.length > 0 ? overall : figures.slice(0, rowsAtOnce);
  const compared = (overall.length > 0 ? overall : figures.slice(0, 8)).filter((one) => one.rows.length > 1);
  return (
    <section class="card stack" aria-label={taskName(result.task)}>
      <div>
        <h2>
          {taskName(result.task)} {result.settings && <span class="tag">{result.settings}</span>}
        </h2>
        {result.file && (
          <p class="small muted">
            on <code>{result.file}</code>
          </p>
        )}
      </div>
      {result.notes.map((note) => (
        <Note key={note}>{note}</Note>
      ))}
      {compared.length > 0 && (
        <>
          <p class="small muted" aria-hidden="true">
            □ {base} · ● the other subjects; lines are {percent(compared[0]!.rows[0]!.confidence)} intervals, each row has its own scale.
          </p>
          <Intervals
            rows={compared.flatMap((one) =>
              one.rows
                .slice(1)
                .map((row) => ({ label: label(one, row), base: side(one.rows[0]!), adapted: side(row), verdict: row.verdict })),
            )}
          />
        </>
      )}
      {needleGrids(result).map((grid) => (
        <Needles key={grid.needles} grid={grid} base={base} />
      ))}
      <div class="grid wide">
        {result.head_tables
          .filter((table) => !table.pairs)
          .map((table, i) => (
            <Heads key={i} table={table} />
          ))}
      </div>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={`${taskName(result.task)}: every number`}>
        <table>
          <caption class="hidden">{taskName(result.task)}: every number</caption>
          <thead>
            <tr>
              <th scope="col">Measured</th>
              <th scope="col">Subject</th>
              <th scope="col" class="number">
                Value
              </th>
              <th scope="col" class="number">
                {base}
              </th>
              <th scope="col" class="number">
                Difference
              </th>
              <th scope="col">Verdict</th>
              <th scope="col" class="number">
                Over
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.flatMap((one) =>
              (one.rows.length > 1 ? one.rows.slice(1) : one.rows).map((row) => (
                <tr key={`${one.metric} ${dimsText(one.dims)} ${row.subject}`}>
                  <th scope="row">
                    {one.metric.replace(/_/g, ' ')}
                    {Object.keys(one.dims).length > 0 && <span class="muted"> ({dimsText(one.dims)})</span>}
                  </th>
                  <td>{row.subject}</td>
                  <td class="number">
                    <Value row={row} />
                  </td>
                  <td class="number">{row !== one.rows[0] && <Value row={one.rows[0]!} />}</td>
                  <td class="number">
                    <Delta row={row} />
                  </td>
                  <td>
                    <VerdictBadge verdict={row.verdict} />
                  </td>
                  <td class="number">{count(row.n)}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
      {figures.length > shown.length && (
        <p>
          <button type="button" class="button" onClick={() => setAll(true)}>
            Show all {count(figures.length)} figures, by {Object.keys(figures[figures.length - 1]!.dims).join(' and ')}
          </button>
        </p>
      )}
    </section>
  );
}

function Value({ row }: { row: EvaluationRow }) {
  return (
    <>
      {figure(row.value)}
      {row.low !== undefined && (
        <span class="muted">
          {' '}
          ({figure(row.low)} to {figure(row.high)})
        </span>
      )}
    </>
  );
}

const label = (one: Figure, row: EvaluationRow) =>
  `${one.metric.replace(/_/g, ' ')}${Object.keys(one.dims).length > 0 ? `, ${dimsText(one.dims)}` : ''}: ${row.subject}`;
const side = (row: EvaluationRow): IntervalSide => ({ value: num(row.value), low: num(row.low), high: num(row.high) });

// Before, after, and what lies between, by length of the text and where in it the facts are.
function Needles({ grid, base }: { grid: ReturnType<typeof needleGrids>[number]; base: string }) {
  const subjects = [...grid.bySubject.keys()];
  const others = subjects.filter((subject) => subject !== base);
  const [other, setOther] = useState(others[0] ?? '');
  const before = grid.bySubject.get(base);
  const after = grid.bySubject.get(other);
  const common = {
    rows: grid.depths.map((depth) => `${depth} %`),
    columns: grid.lengths.map((length) => count(length)),
    rowName: 'depth',
    columnName: 'length',
    cell: 34,
    numbers: true,
    format: (v: number) => percent(v),
    bare: true,
  };
  const mean = (values: number[][]) => {
    const all = values.flat().filter(Number.isFinite);
    return percent(all.reduce((sum, v) => sum + v, 0) / Math.max(1, all.length));
  };
  const change = before && after ? difference(before, after) : undefined;
  return (
    <div class="stack tight">
      {grid.needles && <h3>{grid.needles} facts hidden</h3>}
      {others.length > 1 && (
        <div style={{ width: '260px' }}>
          <Select
            label="Compared subject"
            value={other}
            onValue={setOther}
            options={others.map((name): [string, string] => [name, name])}
          />
        </div>
      )}
      <div class="grid">
        {before && (
          <CellMap {...common} title={`Before: ${base}`} summary={`Found ${mean(before)} on average.`} values={before} low={0} high={1} />
        )}
        {after && (
          <CellMap {...common} title={`After: ${other}`} summary={`Found ${mean(after)} on average.`} values={after} low={0} high={1} />
        )}
        {change && (
          <CellMap
            {...common}
            title="Difference"
            summary="Blue: found more often; orange: less often."
            values={change}
            diverging
            format={(v) => signed(v * 100, 2)}
          />
        )}
      </div>
    </div>
  );
}

function Heads({ table }: { table: HeadTable }) {
  const values = table.layers.map((layer) => layer.value.map(num));
  const finite = values.flat().filter(Number.isFinite);
  return (
    <CellMap
      bare
      title={`${table.metric.replace(/_/g, ' ')}: ${table.subject}`}
      summary={finite.length > 0 ? `From ${figure(Math.min(...finite), 3)} to ${figure(Math.max(...finite), 3)}.` : 'Not defined.'}
      rows={values.map((_, i) => String(i))}
      columns={Array.from({ length: table.heads }, (_, i) => String(i))}
      rowName="layer"
      columnName="head"
      values={values}
      format={(v) => figure(v, 3)}
      cell={Math.max(8, Math.min(18, 360 / Math.max(1, values.length)))}
    />
  );
}
