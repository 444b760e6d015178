#!lua flags=allow-oom
-- Figures for the metrics page: counted from the sets, so they cannot drift.
-- ARGV: clock
-- Replies: OK {{pool, oldest_ready_seconds}, …} {{count, pool, state, want, phase, progress}, …} {{pools, state}, …}: pools, jobs
--   that are not terminal, workers. Jobs are counted by what their public state is made of (phase and progress only while it
--   depends on them). 1000 jobs of a set are looked at; how many more there are counts under the pool `other` (jobs.md §13 P17).
local jobs, row_of = {}, {}
local function count(n, ...)
  local key = table.concat({...}, '\n')
  if not row_of[key] then
    row_of[key] = {0, ...}
    jobs[#jobs + 1] = row_of[key]
  end
  row_of[key][1] = row_of[key][1] + n
end

local pools = {}
for _, pool in ipairs(call('SMEMBERS', P .. 'pools')) do
  pools[#pools + 1] = {pool, fmt6(oldest_ready(pool) / 1000)}
  count(call('ZCARD', P .. 'ready:' .. pool), pool, 'READY', '', '', '')
end
for set, state in pairs({lease = 'RUNNING', delayed = 'DELAYED', paused = 'PAUSED'}) do
  local ids = call('ZRANGE', P .. set, 0, 999)
  for _, id in ipairs(ids) do
    local r = call('HMGET', P .. 'job:' .. id, 'pool', 'state', 'want', 'phase', 'progress')
    local checking = r[4] == 'VALIDATING'
    count(1, r[1] or '', r[2] or '', r[3] or '', checking and r[4] or '', checking and r[5] or '')
  end
  local more = call('ZCARD', P .. set) - #ids
  if more > 0 then count(more, 'other', state, '', '', '') end
end
for _, row in ipairs(jobs) do row[1] = fmt(row[1]) end

local workers = {}
for _, w in ipairs(call('ZRANGE', P .. 'workers', 0, 999)) do
  local r = call('HMGET', P .. 'worker:' .. w, 'pools', 'state')
  workers[#workers + 1] = {r[1] or '', r[2] or ''}
end
return {'OK', pools, jobs, workers}
