#!lua flags=allow-oom
-- A checkpoint that a user wants now. `ckreq` in the job is the one that is asked for; beat tells the worker of it and lib.lua's
-- point_to() stores the answer in `ckpts`.
-- ARGV: clock, op, tenant, id, checkpoint id, and for `ask`: request_id or '', req_sha, ttl_ms
-- Replies: ask: OK checkpoint id (another's, when one is on its way) | DUP checkpoint id | CONFLICT checkpoint id |
--   TERMINAL state | BADSTATE state · look: WRITTEN ms step sha uri | PENDING | NONE · both: NOTFOUND
local op, t, id, checkpoint = arg(), arg(), arg(), arg()
if op == 'look' then
  local j = job(id)
  if not j or j.tenant ~= t then return {'NOTFOUND'} end
  local written = call('HGET', P .. 'ckpts:' .. id, checkpoint)
  if not written then return {j.ckreq == checkpoint and 'PENDING' or 'NONE'} end
  return {'WRITTEN', string.match(written, '^([0-9]+)\n([0-9]*)\n([^\n]*)\n(.*)$')}
elseif op == 'ask' then
  local request_id, sha, ttl = arg(), arg(), arg()
  local made = done_by(t, request_id, sha)
  if made then return made end
  local j = job(id)
  if not j or j.tenant ~= t then return {'NOTFOUND'} end
  if TERMINAL[j.state] then return {'TERMINAL', j.state} end
  if j.state ~= 'RUNNING' then return {'BADSTATE', j.state} end
  if call('HEXISTS', P .. 'ckpts:' .. id, checkpoint) == 0 then
    if j.ckreq then checkpoint = j.ckreq else put(j, 'ckreq', checkpoint) end
  end
  remember(t, request_id, sha, ttl, checkpoint)
  return {'OK', checkpoint}
end
return {'BADARG', 'unknown op'}
