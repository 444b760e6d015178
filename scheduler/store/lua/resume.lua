#!lua flags=allow-oom
-- Resume (T14): always means start. No quota check: a paused job never left the count of queued ones.
-- ARGV: clock, tenant, id, request_id or '', req_sha, ttl_ms
-- Replies: OK state | DUP id | CONFLICT id | TERMINAL state | BADSTATE state | NOTFOUND
local t, id, request_id, sha, ttl = arg(), arg(), arg(), arg(), arg()
local made = done_by(t, request_id, sha)
if made then return made end
local j = job(id)
if not j or j.tenant ~= t then return {'NOTFOUND'} end
if TERMINAL[j.state] then return {'TERMINAL', j.state} end
if j.state == 'CANCELLING' then return {'BADSTATE', j.state} end
remember(t, request_id, sha, ttl, id)
if j.state == 'PAUSED' then
  leave(j)
  put(j, 'want', 'run', 'fulls', '0', 'enter_ms', fmt(now))
  drop(j, 'pause_reason')
  enter(j, 'READY')
  event(j, '', '', 'resume')
  log(j, '0', 'INFO', 'job_resumed', 'Queued again.')
  ring_sync(t, j.pool)
elseif j.want ~= 'run' then
  put(j, 'want', 'run', 'rev', fmt(num(j.rev) + 1))
end
return {'OK', j.state}
