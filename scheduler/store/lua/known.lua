#!lua flags=allow-oom
-- What a request_id has made within its time, for callers that can skip work then.
-- ARGV: clock, tenant, request_id, req_sha
-- Replies: NONE | DUP ids… | CONFLICT ids…
local t, request_id, sha = arg(), arg(), arg()
local made = call('HMGET', P .. 'idem:' .. t .. ':' .. request_id, 'sha', 'ids')
if not made[1] then return {'NONE'} end
local reply = {made[1] == sha and 'DUP' or 'CONFLICT'}
for id in string.gmatch(made[2], '%S+') do reply[#reply + 1] = id end
return reply
