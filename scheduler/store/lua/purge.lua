#!lua flags=allow-oom
-- Purge (T17): the end of a terminal job's record, in two steps; the caller removes its artefacts in between. A published
-- adapter belongs to its own record and stays.
-- ARGV: clock, op mark|commit, tenant ('' = the janitor), id, retention_ms, request_id or '', req_sha, ttl_ms
-- Replies: OK state | DUP id | CONFLICT id | NOTFOUND (GONE to the janitor) · mark: BADSTATE state | YOUNG state | BADARG text ·
--   commit: NOTMARKED state
local op, t, id, retention, request_id, sha, ttl = arg(), arg(), arg(), num(arg()), arg(), arg(), arg()
local janitor = t == ''
if not janitor then
  local made = done_by(t, request_id, sha)
  if made then return made end
end
local j = job(id)
if not j or (not janitor and j.tenant ~= t) then return {janitor and 'GONE' or 'NOTFOUND'} end

if op == 'mark' then
  -- A request_id is known for a day, so a janitor that is younger could delete the job of one that may still be repeated.
  if janitor and retention < DAY_MS then return {'BADARG', 'retention'} end
  if j.purging then return {'OK', j.state} end
  if not TERMINAL[j.state] then return {'BADSTATE', j.state} end
  if now - num(j.finished_ms) < retention then return {'YOUNG', j.state} end
  put(j, 'purging', '1')
  return {'OK', j.state}
elseif op == 'commit' then
  if not j.purging then return {'NOTMARKED', j.state} end
  if not janitor then remember(t, request_id, sha, ttl, id) end
  local state = j.state
  leave(j)
  call('ZREM', set_key('tjobs', j), id)
  call('UNLINK', P .. 'job:' .. id, P .. 'spec:' .. id, P .. 'log:' .. id, P .. 'ckpts:' .. id)
  j.state = ''
  event(j, '', '', 'purge')
  return {'OK', state}
end
return {'BADARG', 'unknown op'}
