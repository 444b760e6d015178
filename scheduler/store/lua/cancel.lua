#!lua flags=allow-oom
-- Cancel (T11, T12): waiting jobs end at once, running ones are told at their next beat.
-- ARGV: clock, tenant, id, why, request_id or '', req_sha, ttl_ms
-- Replies: OK state | DUP id | CONFLICT id | TERMINAL state code | NOTFOUND
local t, id, why, request_id, sha, ttl = arg(), arg(), arg(), arg(), arg(), arg()
local made = done_by(t, request_id, sha)
if made then return made end
local j = job(id)
if not j or j.tenant ~= t then return {'NOTFOUND'} end
if TERMINAL[j.state] then return {'TERMINAL', j.state, j.why_code or ''} end
remember(t, request_id, sha, ttl, id)
if j.state == 'CANCELLING' then return {'OK', j.state} end
return {'OK', stop(j, 'cancelled', why, '')}
