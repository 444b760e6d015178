#!lua flags=allow-oom
-- Cancel (T11, T12): waiting jobs end at once, running ones are told at their next beat.
-- ARGV: clock, tenant, id, why
-- Replies: OK state | TERMINAL state code | NOTFOUND
local t, id, why = arg(), arg(), arg()
local j = job(id)
if not j or j.tenant ~= t then return {'NOTFOUND'} end
if TERMINAL[j.state] then return {'TERMINAL', j.state, j.why_code or ''} end
if j.state == 'CANCELLING' then return {'OK', j.state} end
return {'OK', stop(j, 'cancelled', why, '')}
