import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import { dimsText } from '@/model/evaluation_rows';
import { count, figure } from '@/model/format';
import { ErrorNote, Head, Loading, Note } from '@/ui/parts';
import { to } from '@/ui/route';
import { taskName } from './evaluations';
import { Delta, VerdictBadge } from './evaluation_results';

// Two evaluations on the same items: what lies between them, with paired intervals.
export function Comparison({ a, b }: { a: string; b: string }) {
  const asked = usePoll(`compare ${a} ${b}`, (signal) => call('EvaluationService/CompareEvaluations', { a, b }, signal));
  return (
    <div class="stack">
      <Head title="Two evaluations compared">
        <p>
          <a href={to(['evaluations', a])}>…{a.slice(-8)}</a> (first) against <a href={to(['evaluations', b])}>…{b.slice(-8)}</a> (second),
          item by item.
        </p>
      </Head>
      {!asked.data ? (
        asked.error ? (
          <ErrorNote error={asked.error} retry={asked.refresh} />
        ) : (
          <Loading what="the comparison" />
        )
      ) : (
        <>
          {asked.data.notes.map((note) => (
            <Note key={note}>{note}</Note>
          ))}
          <section class="card flush scroll-x" tabIndex={0} aria-label="Differences">
            <table>
              <thead>
                <tr>
                  <th scope="col">Measured</th>
                  <th scope="col">First</th>
                  <th scope="col">Second</th>
                  <th scope="col" class="number">
                    First
                  </th>
                  <th scope="col" class="number">
                    Second
                  </th>
                  <th scope="col" class="number">
                    Difference
                  </th>
                  <th scope="col">Second is</th>
                  <th scope="col" class="number">
                    Over
                  </th>
                </tr>
              </thead>
              <tbody>
                {asked.data.differences.map((row, i) => (
                  <tr key={i}>
                    <th scope="row">
                      {taskName(row.task)}: {row.metric.replace(/_/g, ' ')}
                      {Object.keys(row.dims).length > 0 && <span class="muted"> ({dimsText(row.dims)})</span>}
                    </th>
                    <td>{row.subject_a}</td>
                    <td>{row.subject_b}</td>
                    <td class="number">{figure(row.value_a)}</td>
                    <td class="number">{figure(row.value_b)}</td>
                    <td class="number">
                      <Delta row={row} />
                    </td>
                    <td>
                      <VerdictBadge verdict={row.verdict} />
                    </td>
                    <td class="number">{count(row.n)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        </>
      )}
    </div>
  );
}
