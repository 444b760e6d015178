#!lua flags=allow-oom
-- What the workers should hold. `desired` is the zset of adapters that somebody asked to load.
-- ARGV: clock, op, and for
--   desire: tenant, request_id or '', req_sha, ttl_ms, id, desired none|loaded, tier DEVICE|HOST, pinned 0|1, disabled 0|1;
--     desired and pinned: '' leaves it as it is
--   delete: tenant, request_id or '', req_sha, ttl_ms, id
--   wanted: count (≤ 200), ms and id of the last row of the page before ('' each: the first page)
-- Replies: desire: OK desired_rev · delete: OK uri | INUSE job-that-needs-it-or-'' aliases-that-point-to-it-or-''
--     (both '': workers are to hold it)
--   wanted: OK desired_rev row…, each {id, ms, record {field, value, …}}; fewer rows than `count`: the last page
--   desire: PINNED (it is not let go) · desire, delete: DUP id | CONFLICT id | NOTFOUND
local op = arg()
if op == 'desire' then
  local t, request_id, sha, ttl = arg(), arg(), arg(), arg()
  local made = done_by(t, request_id, sha)
  if made then return made end
  local id, desired, tier, pinned, disabled = arg(), arg(), arg(), arg(), arg()
  local key = P .. 'adapter:' .. id
  local a = record(key)
  if not a or a.tenant ~= t then return {'NOTFOUND'} end
  if desired == '' then desired = a.desired end
  if pinned == '' then pinned = a.pinned end
  if desired == 'none' and pinned == '1' then return {'PINNED'} end
  remember(t, request_id, sha, ttl, id)
  if a.desired ~= desired or a.tier ~= tier or a.pinned ~= pinned or a.disabled ~= disabled then
    call('HSET', key, 'desired', desired, 'tier', tier, 'pinned', pinned, 'disabled', disabled,
         'rev', fmt(num(a.rev) + 1))
    if desired == 'loaded' or disabled == '1' then
      call('ZADD', P .. 'desired', fmt(now), id)
    else
      call('ZREM', P .. 'desired', id)
    end
    call('HINCRBY', CFG, 'desired_rev', '1')
    call('HINCRBY', CFG, 'routes_rev', '1')
  end
  return {'OK', fmt(num(call('HGET', CFG, 'desired_rev')))}
elseif op == 'delete' then
  local t, request_id, sha, ttl, id = arg(), arg(), arg(), arg(), arg()
  local made = done_by(t, request_id, sha)
  if made then return made end
  local key = P .. 'adapter:' .. id
  local a = record(key)
  if not a or a.tenant ~= t then return {'NOTFOUND'} end
  if a.desired == 'loaded' then return {'INUSE', ''} end
  local user = call('ZRANGE', P .. 'adapteruse:' .. id, 0, 0)[1]
  if user then return {'INUSE', user} end
  if a.aliases then return {'INUSE', '', a.aliases} end
  remember(t, request_id, sha, ttl, id)
  call('DEL', key)
  call('ZREM', P .. 'tadapters:' .. t, id)
  if call('ZREM', P .. 'desired', id) == 1 then call('HINCRBY', CFG, 'desired_rev', '1') end
  call('HINCRBY', CFG, 'routes_rev', '1')
  return {'OK', a.uri}
elseif op == 'wanted' then
  local count, ms, id = math.min(num(arg()), 200), arg(), arg()
  local reply = {'OK', fmt(num(call('HGET', CFG, 'desired_rev')))}
  for _, row in ipairs(page_after(P .. 'desired', ms, id, count)) do
    reply[#reply + 1] = {row[1], row[2], call('HGETALL', P .. 'adapter:' .. row[1])}
  end
  return reply
end
return {'BADARG', 'unknown op'}
