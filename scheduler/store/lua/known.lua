#!lua flags=allow-oom
-- What a request_id has made within its time, for callers that can skip work then.
-- ARGV: clock, tenant, request_id, req_sha
-- Replies: NONE | DUP ids… | CONFLICT ids…
local t, request_id, sha = arg(), arg(), arg()
return done_by(t, request_id, sha) or {'NONE'}
