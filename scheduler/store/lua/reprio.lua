#!lua flags=allow-oom
-- Update of what may change while a job exists (T16): nothing that would change its result. A waiting job moves in its tenant's
-- queue; others take the new priority along.
-- ARGV: clock, tenant, id, etag or '', prio or '', with_metadata 0|1, metadata (opaque), with_name 0|1, name,
--   request_id or '', req_sha, ttl_ms
-- Replies: OK state rev | DUP id | CONFLICT id | NOTFOUND | PURGING state | STALE rev | TERMINAL state
local t, id, etag, prio, with_metadata, metadata = arg(), arg(), arg(), arg(), arg(), arg()
local with_name, name, request_id, sha, ttl = arg(), arg(), arg(), arg(), arg()
local made = done_by(t, request_id, sha)
if made then return made end
local j = job(id)
if not j or j.tenant ~= t then return {'NOTFOUND'} end
if j.purging then return {'PURGING', j.state} end
if etag ~= '' and etag ~= j.rev then return {'STALE', j.rev} end
if prio ~= '' and TERMINAL[j.state] then return {'TERMINAL', j.state} end

remember(t, request_id, sha, ttl, id)
local moves = prio ~= '' and prio ~= j.prio
local changed = moves
if with_metadata == '1' and metadata ~= j.metadata then
  put(j, 'metadata', metadata)
  changed = true
end
if with_name == '1' and name ~= j.name then
  put(j, 'name', name)
  changed = true
end
if moves then put(j, 'prio', prio) end
if changed then put(j, 'rev', fmt(num(j.rev) + 1)) end
if moves and j.state == 'READY' then
  for _, set in ipairs({'ready', 'rq'}) do call('ZADD', set_key(set, j), set_score(set, j), id) end
  event(j, '', '', 'reprio')
end
return {'OK', j.state, j.rev}
