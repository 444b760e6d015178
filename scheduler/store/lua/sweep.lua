#!lua flags=allow-oom
-- Sweep (T2, T9, T10, deadlines of T11 and T12): what time alone changes. Any replica, any number of times.
-- ARGV: clock, limit of each kind, crash_backoff_ms, settle_ms, gap_ms, lease_max_ms, worker_timeout_ms
-- Replies: OK pulled_back deadlines leases delayed uncapped workers_lost settling 0|1 news (numbers; call again while one of
--   the first six = limit; `news` = jobs that became terminal or READY, so somebody wants to know)
--   {pool, kind, state, why_code, lease 0|1}… of the jobs whose lease or deadline was over, then orphans: members of these
--   sets that disagreed with their job and were taken out (reconcile has more to do)
local limit, backoff, settle, gap, lease_max, worker_timeout = arg(), num(arg()), num(arg()), num(arg()), num(arg()), num(arg())
local c = call('HMGET', CFG, 'swept_ms', 'settle_until')
local settle_until, counts, news, rows, orphans = num(c[2]), {0, 0, 0, 0, 0, 0}, 0, {}, 0

-- Nobody swept for a while: scheduler or store were away, so leases could not be renewed. Give everyone one lease.
if now - num(c[1]) > gap then settle_until = math.max(settle_until, now + settle) end
-- The clock stepped back: nothing may lie further ahead than its maximum.
if settle_until > now + settle then settle_until = now + settle end
call('HSET', CFG, 'swept_ms', fmt(now), 'settle_until', fmt(settle_until))

local ahead = fmt(now + lease_max)
for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'lease', '(' .. ahead, '+inf', 'LIMIT', 0, limit)) do
  local j = job(id)
  if j and belongs(j, 'lease') then
    put(j, 'lease_ms', ahead)
    call('ZADD', P .. 'lease', ahead, id)
  else
    call('ZREM', P .. 'lease', id)
    orphans = orphans + 1
  end
  counts[1] = i
end

for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadline', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  local j = due('deadline', id, now)
  if j then
    stop(j, 'deadline_exceeded', 'The job did not end before its deadline.', '')
    rows[#rows + 1] = {j.pool, j.kind, j.state, j.why_code, '0'}
    news = news + 1
  else
    orphans = orphans + 1
  end
  counts[2] = i
end

local function lose(j)
  local epoch, worker = j.epoch, j.worker or 'unknown'
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
end

local settling = now < settle_until
if not settling then
  for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'lease', '-inf', '(' .. fmt(now), 'LIMIT', 0, limit)) do
    local j = due('lease', id, now - 1)
    if j then
      lose(j)
      news = news + 1
    else
      orphans = orphans + 1
    end
    counts[3] = i
  end
end

for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'delayed', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  local j = due('delayed', id, now)
  if j then
    leave(j)
    enter(j, 'READY')
    event(j, '', '', 'due')
    ring_sync(j.tenant, j.pool)
    news = news + 1
  else
    orphans = orphans + 1
  end
  counts[4] = i
end

for i, t in ipairs(call('ZRANGEBYSCORE', P .. 'capped', '-inf', fmt(now), 'LIMIT', 0, limit)) do
  call('ZREM', P .. 'capped', t)
  ring_sync_all(t)
  counts[5], news = i, news + 1
end

if not settling then
  for i, w in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', '(' .. fmt(now - worker_timeout), 'LIMIT', 0, limit)) do
    worker_gone(w)
    call('HINCRBY', CFG, 'routes_rev', '1')
    counts[6] = i
  end
end

local reply = {'OK'}
for i = 1, 6 do reply[i + 1] = fmt(counts[i]) end
reply[8], reply[9], reply[10], reply[11] = settling and '1' or '0', fmt(news), rows, fmt(orphans)
return reply
