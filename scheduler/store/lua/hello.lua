#!lua flags=allow-oom
-- Hello: called on every new connection. A Redis that restarted opens a settle window in which nobody loses a lease.
-- ARGV: clock, run_id of INFO server, settle_ms, schema version of the caller
-- Replies: NEW | SAME | SCHEMA version (the store is newer than the caller, who must not touch it)
local run_id, settle, schema = arg(), num(arg()), num(arg())
local c = call('HMGET', CFG, 'run_id', 'settle_until', 'schema')
if num(c[3]) > schema then return {'SCHEMA', c[3]} end
if c[1] == run_id then return {'SAME'} end
call('HSET', CFG, 'run_id', run_id, 'settle_until', fmt(math.max(num(c[2]), now + settle)), 'schema', fmt(schema))
return {'NEW'}
