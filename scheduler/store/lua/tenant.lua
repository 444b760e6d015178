#!lua flags=allow-oom
-- Weight and limits of a tenant; they hold at once, in every pool. Lower limits stop nothing that runs. What is '' stays as it is.
-- ARGV: clock, tenant, weight, max_queued, max_running, gpu_max_day (GPU-seconds, 0 = no limit), and of a call over the wire
--   etag or '', tenant of the caller, request_id or '', req_sha, ttl_ms
-- Replies: OK rev | DUP tenant | CONFLICT tenant | STALE rev | BADARG field
local t = arg()
local values = {weight = arg(), max_queued = arg(), max_running = arg(), gpu_max_day = arg()}
local etag, caller, request_id, sha, ttl = arg() or '', arg() or '', arg() or '', arg(), arg()
if values.weight ~= '' and num(values.weight) <= 0 then return {'BADARG', 'weight'} end
local made = request_id ~= '' and done_by(caller, request_id, sha)
if made then return made end
local key = P .. 'tenant:' .. t
local rev = call('HGET', key, 'rev') or '0'
if etag ~= '' and etag ~= rev then return {'STALE', rev} end

call('SADD', P .. 'tenants', t)
remember(caller, request_id, sha, ttl, t)
local changed = false
for field, value in pairs(values) do
  if value ~= '' and value ~= call('HGET', key, field) then
    call('HSET', key, field, value)
    changed = true
  end
end
if changed then
  rev = fmt(num(rev) + 1)
  call('HSET', key, 'rev', rev)
end
call('ZREM', P .. 'capped', t)
ring_sync_all(t)
return {'OK', rev}
