#!lua flags=allow-oom
-- Sweep (T2, T9, T10, deadlines of T11 and T12): what time alone changes. Any replica, any number of times.
-- ARGV: clock, limit of each kind, crash_backoff_ms, settle_ms, gap_ms, lease_max_ms, worker_timeout_ms
-- Replies: OK pulled_back deadlines leases delayed uncapped workers_lost settling 0|1 news (numbers; call again while one of
--   the first six = limit; `news` = jobs that became terminal or READY, so somebody wants to know)
--   {pool, kind, state, why_code, lease 0|1}… of the jobs whose lease or deadline was over
local limit, backoff, settle, gap, lease_max, worker_timeout = arg(), num(arg()), num(arg()), num(arg()), num(arg()), num(arg())
local c = call('HMGET', CFG, 'swept_ms', 'settle_until')
local settle_until, counts, news, rows = num(c[2]), {0, 0, 0, 0, 0, 0}, 0, {}

-- Nobody swept for a while: scheduler or store were away, so leases could not be renewed. Give everyone one lease.
if now - num(c[1]) > gap then settle_until = math.max(settle_until, now + settle) end
-- The clock stepped back: nothing may lie further ahead than its maximum.
if settle_until > now + settle then settle_until = now + settle end
call('HSET', CFG, 'swept_ms', fmt(now), 'settle_until', fmt(settle_until))

local ahead = fmt(now + lease_max)
for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'lease', '(' .. ahead, '+inf', 'LIMIT', 0, limit)) do
  call('HSET', P .. 'job:' .. id, 'lease_ms', ahead)
  call('ZADD', P .. 'lease', ahead, id)
  counts[1] = i
end

for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadline', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  local j = job(id)
  if j then
    stop(j, 'deadline_exceeded', 'The job did not end before its deadline.', '')
    rows[#rows + 1] = {j.pool, j.kind, j.state, j.why_code, '0'}
  end
  counts[2], news = i, news + 1
end

local settling = now < settle_until
if not settling then
  for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'lease', '-inf', '(' .. fmt(now), 'LIMIT', 0, limit)) do
    local j = job(id)
    local epoch, worker = j.epoch, j.worker
    local cancelling = j.state == 'CANCELLING'
    end_attempt(j)
    if cancelling then
      terminal(j, 'CANCELLED')
    else
      put(j, 'why_code', 'worker_lost', 'why', 'The worker ' .. worker .. ' was lost.')
      crashed(j, backoff, 'worker ' .. worker .. ' was lost')
    end
    event(j, epoch, worker, 'lease_expired')
    if TERMINAL[j.state] then log_end(j) else log_requeue(j, 'worker ' .. worker .. ' was lost') end
    synced(j)
    rows[#rows + 1] = {j.pool, j.kind, j.state, j.why_code, '1'}
    counts[3], news = i, news + 1
  end
end

for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'delayed', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  local j = job(id)
  leave(j)
  enter(j, 'READY')
  event(j, '', '', 'due')
  ring_sync(j.tenant, j.pool)
  counts[4], news = i, news + 1
end

for i, t in ipairs(call('ZRANGEBYSCORE', P .. 'capped', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  call('ZREM', P .. 'capped', t)
  ring_sync_all(t)
  counts[5], news = i, news + 1
end

if not settling then
  for i, w in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', '(' .. fmt(now - worker_timeout), 'LIMIT', 0, limit)) do
    call('ZREM', P .. 'workers', w)
    call('HSET', P .. 'worker:' .. w, 'state', 'gone')
    call('HINCRBY', CFG, 'routes_rev', '1')
    counts[6] = i
  end
end

local reply = {'OK'}
for i = 1, 6 do reply[i + 1] = fmt(counts[i]) end
reply[8], reply[9], reply[10] = settling and '1' or '0', fmt(news), rows
return reply
