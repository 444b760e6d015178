#!lua flags=allow-oom
-- Weight and limits of a tenant; they hold at once, in every pool. Lower limits stop nothing that runs.
-- ARGV: clock, tenant, weight, max_queued, max_running, gpu_max_day (GPU-seconds, 0 = no limit)
-- Replies: OK
local t, weight, max_queued, max_running, gpu_max_day = arg(), arg(), arg(), arg(), arg()
if num(weight) <= 0 then return {'BADARG', 'weight'} end
call('SADD', P .. 'tenants', t)
call('HSET', P .. 'tenant:' .. t, 'weight', weight, 'max_queued', max_queued, 'max_running', max_running,
     'gpu_max_day', gpu_max_day)
call('ZREM', P .. 'capped', t)
ring_sync_all(t)
return {'OK'}
