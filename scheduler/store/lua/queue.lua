#!lua flags=allow-oom
-- What waits in a pool, in the order of priority and age. Whose turn it is goes from tenant to tenant (jobs.md §5).
-- ARGV: clock, pool, count (≤ 100)
-- Replies: OK ready running oldest_seconds workers row… each {id, tenant, kind, prio, ms that it waits, in_ring 0|1,
--   lacks_model 0|1 (lib.lua), seconds that it is estimated to take}: the first `count` of them
local pool, count = arg(), math.min(num(arg()), 100)
local workers = 0
for _, w in ipairs(call('ZRANGE', P .. 'workers', '0', '999')) do
  local r = call('HMGET', P .. 'worker:' .. w, 'state', 'pools')
  if r[1] == 'up' and string.find(' ' .. (r[2] or '') .. ' ', ' ' .. pool .. ' ', 1, true) then workers = workers + 1 end
end
local ready = call('ZCARD', P .. 'ready:' .. pool)
local busy = math.max(0, call('ZCARD', P .. 'inflight:' .. pool) - ready)
local reply = {'OK', fmt(ready), fmt(busy), fmt6(oldest_ready(pool) / 1000), fmt(workers)}
for _, id in ipairs(count > 0 and call('ZRANGE', P .. 'ready:' .. pool, '0', fmt(count - 1)) or {}) do
  local j = call('HMGET', P .. 'job:' .. id, 'tenant', 'kind', 'prio', 'enter_ms', 'cost')
  if j[1] then  -- else an orphan, which the next claim takes out
    local in_ring = call('ZSCORE', P .. 'ring:' .. pool, j[1]) and '1' or '0'
    reply[#reply + 1] = {id, j[1], j[2], j[3], fmt(math.max(0, now - num(j[4]))), in_ring, lacks_model(id), j[5] or '0'}
  end
end
return reply
