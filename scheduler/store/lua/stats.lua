#!lua flags=allow-oom
-- Figures for the metrics page: counted from the sets, so they cannot drift.
-- ARGV: clock
-- Replies: OK {pool, ready, inflight, oldest_ready_seconds, …} delayed paused succeeded failed cancelled workers…{pools, state}
local pools = {}
for _, pool in ipairs(call('SMEMBERS', P .. 'pools')) do
  local oldest = 0
  for _, t in ipairs(call('ZRANGE', P .. 'ring:' .. pool, 0, 199)) do
    local id = call('ZRANGE', P .. 'rq:' .. pool .. ':' .. t, 0, 0)[1]
    if id then oldest = math.max(oldest, now - num(call('HGET', P .. 'job:' .. id, 'enter_ms'))) end
  end
  pools[#pools + 1] = {pool, fmt(call('ZCARD', P .. 'ready:' .. pool)), fmt(call('ZCARD', P .. 'inflight:' .. pool)),
                       fmt6(oldest / 1000)}
end
local workers = {}
for _, w in ipairs(call('ZRANGE', P .. 'workers', 0, 999)) do
  local r = call('HMGET', P .. 'worker:' .. w, 'pools', 'state')
  workers[#workers + 1] = {r[1] or '', r[2] or ''}
end
return {'OK', pools, fmt(call('ZCARD', P .. 'delayed')), fmt(call('ZCARD', P .. 'paused')), fmt(call('ZCARD', P .. 'done')),
        fmt(call('ZCARD', P .. 'dead')), workers}
