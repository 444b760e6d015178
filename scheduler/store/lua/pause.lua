#!lua flags=allow-oom
-- Pause (T13): a waiting job at once, a running one at its next beat, with a checkpoint. Frees no place in the queue.
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
if j.state == 'PAUSED' or j.want == 'pause' then return {'OK', j.state} end
if j.state == 'RUNNING' then
  put(j, 'want', 'pause', 'rev', fmt(num(j.rev) + 1))  -- overrides hold
else
  leave(j)
  put(j, 'want', 'run', 'pause_reason', 'USER')
  enter(j, 'PAUSED')
  event(j, '', '', 'pause')
  log(j, '0', 'INFO', 'job_paused', 'Paused: USER.')
  ring_sync(t, j.pool)
end
return {'OK', j.state}
