#!lua flags=allow-oom
-- What a tenant may have, and what of it it has: of one that nobody set anything for, or that did nothing yet, the defaults.
-- ARGV: clock, tenant
-- Replies: OK weight max_queued max_running gpu_max_day gpu_used_today queued running rev
local t = arg()
local limits = tenant(t)
return {'OK', fmt6(limits.weight), fmt(limits.max_queued), fmt(limits.max_running), fmt6(limits.gpu_max_day),
        fmt6(limits.gpu_used), fmt(queued(t)), fmt(running(t)), call('HGET', P .. 'tenant:' .. t, 'rev') or '0'}
