#!lua flags=allow-oom
-- Workers: one hash each, and `workers`, a zset of those that are up or draining by last heartbeat.
-- ARGV: clock, op, worker, and for
--   register: host, version, pools (spaces between), slots, info (opaque), base models it can run jobs of ('': any)
--   alive: live (opaque: what its engines hold), how far its clock is ahead of its scheduler's in ms ('': not told)
--   drain, gone: –
--   cordon: 1: it gets no jobs from now on, though it is there; 0: it gets jobs again, unless it drains by itself. Then tenant of
--     the caller, request_id or '', req_sha, ttl_ms. What was said holds when it registers again
-- Replies: OK desired_rev routes_rev draining 0|1 | UNKNOWN (register again) | BADARG text | of cordon DUP id, CONFLICT id
local op, id = arg(), arg()
local key = P .. 'worker:' .. id
local state = call('HGET', key, 'state')
local function changed() call('HINCRBY', CFG, 'routes_rev', '1') end
local request = op == 'cordon' and {arg(), arg(), arg(), arg(), arg()}  -- on, caller, request_id, sha, ttl
if request and request[3] ~= '' then
  local made = done_by(request[2], request[3], request[4])
  if made then return made end
end

if op == 'register' then
  local host, version, pools, slots, info, models = arg(), arg(), arg(), arg(), arg(), arg()
  local new, fresh = {}, 0
  for pool in string.gmatch(pools, '%S+') do
    if not new[pool] and call('SISMEMBER', P .. 'pools', pool) == 0 then new[pool], fresh = true, fresh + 1 end
  end
  if fresh > 0 and call('SCARD', P .. 'pools') + fresh > MAX_POOLS then return {'BADARG', 'too many pools'} end
  state = call('HGET', key, 'cordoned') == '1' and 'draining' or 'up'
  call('HSET', key, 'id', id, 'host', host, 'version', version, 'pools', pools, 'slots', slots, 'info', info,
       'models', models, 'state', state, 'live', '', 'registered_ms', fmt(now))
  call('HDEL', key, 'leaving')
  for pool in string.gmatch(pools, '%S+') do call('SADD', P .. 'pools', pool) end
  call('PERSIST', key)  -- it may have been gone
  call('ZADD', P .. 'workers', fmt(now), id)
  changed()
elseif not state or state == 'gone' then
  return {'UNKNOWN'}
elseif op == 'alive' then
  local live, ahead = arg(), arg()
  call('ZADD', P .. 'workers', fmt(now), id)
  if call('HGET', key, 'live') ~= live then
    call('HSET', key, 'live', live)
    changed()
  end
  -- For whoever asks how the platform is; no route depends on it.
  if ahead ~= '' and call('HGET', key, 'clock_ahead_ms') ~= ahead then call('HSET', key, 'clock_ahead_ms', ahead) end
elseif op == 'drain' then
  call('HSET', key, 'leaving', '1')  -- by itself: an operator's 0 does not bring it back
  if state ~= 'draining' then
    call('HSET', key, 'state', 'draining')
    changed()
  end
  state = 'draining'
elseif op == 'cordon' then
  remember(request[2], request[3], request[4], request[5], id)
  call('HSET', key, 'cordoned', request[1])
  local leaving = call('HGET', key, 'leaving') == '1'
  local after = (request[1] == '1' or leaving) and 'draining' or 'up'
  if after ~= state then
    call('HSET', key, 'state', after)
    changed()
  end
  state = after
elseif op == 'gone' then
  worker_gone(id)
  changed()
else
  return {'BADARG', 'unknown op'}
end
local revs = call('HMGET', CFG, 'desired_rev', 'routes_rev')
return {'OK', fmt(num(revs[1])), fmt(num(revs[2])), state == 'draining' and '1' or '0'}
