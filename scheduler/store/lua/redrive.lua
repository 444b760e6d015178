#!lua flags=allow-oom
-- Redrive (T15): an operator gives a FAILED job another life. Its counters start again, its epoch, attempts and log go on, and so
-- does its checkpoint. A pause that waited when it failed is forgotten: who redrives wants it to run.
-- An operation is known as every request is, whatever has been done since, and the last one of a job for ever.
-- ARGV: clock, tenant, id, op_id (the request_id: the same for a repeat), deadline_ms from now (0 = none), req_sha, ttl_ms
-- Replies: OK state | DUP id or state | CONFLICT id | NOTFOUND | BADSTATE state | PURGING state | NOFILE id state-or-'' | NOADAPTER id |
--   NOTUNIQUE job | QUOTA queued max | BADARG text
local t, id, op_id, deadline, sha, ttl = arg(), arg(), arg(), num(arg()), arg(), arg()
if op_id == '' or deadline < 0 then return {'BADARG', 'op_id or deadline'} end
local made = done_by(t, op_id, sha)
if made then return made end
local j = job(id)
if not j or j.tenant ~= t then return {'NOTFOUND'} end
if j.op_id == op_id then return {'DUP', j.state} end
if j.state ~= 'FAILED' then return {'BADSTATE', j.state} end
if j.purging then return {'PURGING', j.state} end
for file in string.gmatch(j.files, '%S+') do
  local owner = call('HMGET', P .. 'file:' .. file, 'tenant', 'state')
  if owner[1] ~= t then return {'NOFILE', file, ''} end
  if owner[2] ~= 'READY' then return {'NOFILE', file, owner[2]} end
end
local lacking = lacking_adapter(t, j.uses or '')
if lacking then return {'NOADAPTER', lacking} end
local name = P .. 'uniq:' .. t .. ':' .. j.uniq
local holder = j.uniq ~= '' and call('GET', name)
if holder then return {'NOTUNIQUE', holder} end
local waiting, limits = queued(t), tenant(t)
if waiting + 1 > limits.max_queued then return {'QUOTA', fmt(waiting), fmt(limits.max_queued)} end

remember(t, op_id, sha, ttl, id)
leave(j)
put(j, 'failures', '0', 'crashes', '0', 'preempts', '0', 'ooms', '0', 'fulls', '0', 'want', 'run', 'op_id', op_id,
    'enter_ms', fmt(now), 'deadline_ms', deadline > 0 and fmt(now + deadline) or '0')
drop(j, 'why_code', 'why', 'why_details', 'finished_ms', 'pause_reason')
if j.uniq ~= '' then call('SET', name, id) end
for file in string.gmatch(j.files, '%S+') do call('ZADD', P .. 'fileuse:' .. file, fmt(now), id) end
if j.uses then hold_adapters(j, j.uses) end
if deadline > 0 then call('ZADD', P .. 'deadline', j.deadline_ms, id) end
enter(j, 'READY')
event(j, '', '', 'redrive')
log(j, '0', 'INFO', 'job_queued', 'Queued again by an operator.')
ring_sync(t, j.pool)
return {'OK', j.state}
