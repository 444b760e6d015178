#!lua flags=allow-oom
-- Workers: one hash each, and `workers`, a zset of those that are up or draining by last heartbeat.
-- ARGV: clock, op, worker, and for
--   register: host, version, pools (spaces between), slots, info (opaque), base models it can run jobs of ('': any)
--   alive: live (opaque: what its engines hold) → also the revisions
--   drain, gone: –
-- Replies: OK desired_rev routes_rev draining 0|1 | UNKNOWN (register again)
local op, id = arg(), arg()
local key = P .. 'worker:' .. id
local state = call('HGET', key, 'state')
local function changed() call('HINCRBY', CFG, 'routes_rev', '1') end

if op == 'register' then
  local host, version, pools, slots, info, models = arg(), arg(), arg(), arg(), arg(), arg()
  call('HSET', key, 'id', id, 'host', host, 'version', version, 'pools', pools, 'slots', slots, 'info', info,
       'models', models, 'state', 'up', 'live', '', 'registered_ms', fmt(now))
  for pool in string.gmatch(pools, '%S+') do call('SADD', P .. 'pools', pool) end
  call('ZADD', P .. 'workers', fmt(now), id)
  state = 'up'
  changed()
elseif not state or state == 'gone' then
  return {'UNKNOWN'}
elseif op == 'alive' then
  local live = arg()
  call('ZADD', P .. 'workers', fmt(now), id)
  if call('HGET', key, 'live') ~= live then
    call('HSET', key, 'live', live)
    changed()
  end
elseif op == 'drain' then
  if state ~= 'draining' then
    call('HSET', key, 'state', 'draining')
    changed()
  end
  state = 'draining'
elseif op == 'gone' then
  call('HSET', key, 'state', 'gone')
  call('ZREM', P .. 'workers', id)
  changed()
else
  return {'BADARG', 'unknown op'}
end
local revs = call('HMGET', CFG, 'desired_rev', 'routes_rev')
return {'OK', fmt(num(revs[1])), fmt(num(revs[2])), state == 'draining' and '1' or '0'}
