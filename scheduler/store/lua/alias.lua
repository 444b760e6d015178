#!lua flags=allow-oom
-- Names of a tenant for its adapters. The record is alias:<tenant>:<name>; the adapter's own record lists the names that point to
-- it, sorted, so that it stays as long as there is one. `rev` is the revision of the routes in which the alias moved: no two
-- states of a name share one, whether it was deleted in between or not.
-- ARGV: clock, op, tenant, and for
--   set: request_id or '', req_sha, ttl_ms, name, adapter, etag or '', create_only 0|1, gates overridden 0|1
--   delete: request_id or '', req_sha, ttl_ms, name, etag or ''
--   get: name
--   list: count (≤ 100), ms and name of the last row of the page before ('' each: the first page)
-- Replies: set, delete, get: OK record {field, value, …}: of a deleted one as it was
--   set, delete: DUP name | CONFLICT name | STALE rev-or-'' | NOTFOUND alias|adapter · set: TAKEN adapter | FULL most
--   list, newest first: OK row…, each {name, ms, record}; fewer rows than `count`: the last page
-- `targets` of a record: the last 20, newest first, three words each: ms, adapter, gates overridden 0|1.
local MOST, MOST_TARGETS = 1000, 20
local op, t = arg(), arg()
local index = P .. 'taliases:' .. t
local function key_of(name) return P .. 'alias:' .. t .. ':' .. name end

-- Takes the name out of the adapter's list, and puts it in where `pointed`.
local function list_name(adapter, name, pointed)
  local key, names = P .. 'adapter:' .. adapter, {}
  for other in string.gmatch(call('HGET', key, 'aliases') or '', '%S+') do
    if other ~= name then names[#names + 1] = other end
  end
  if pointed then names[#names + 1] = name end
  table.sort(names)
  if #names == 0 then call('HDEL', key, 'aliases') else call('HSET', key, 'aliases', table.concat(names, ' ')) end
end

if op == 'set' then
  local request_id, sha, ttl = arg(), arg(), arg()
  local made = done_by(t, request_id, sha)
  if made then return made end
  local name, adapter, etag, create_only, overridden = arg(), arg(), arg(), arg(), arg()
  local key, a = key_of(name), record(P .. 'adapter:' .. adapter)
  if not a or a.tenant ~= t then return {'NOTFOUND', 'adapter'} end
  local old = record(key)
  if etag ~= '' and etag ~= (old and old.rev) then return {'STALE', old and old.rev or ''} end
  if old and create_only == '1' then return {'TAKEN', old.adapter} end
  if not old and call('ZCARD', index) >= MOST then return {'FULL', fmt(MOST)} end
  remember(t, request_id, sha, ttl, name)
  if old and old.adapter == adapter then return {'OK', call('HGETALL', key)} end
  local targets = {fmt(now) .. ' ' .. adapter .. ' ' .. overridden}
  for target in string.gmatch(old and old.targets or '', '%S+ %S+ %S+') do
    if #targets < MOST_TARGETS then targets[#targets + 1] = target end
  end
  if old then list_name(old.adapter, name, false) end
  list_name(adapter, name, true)
  call('HSET', key, 'name', name, 'tenant', t, 'adapter', adapter, 'targets', table.concat(targets, ' '),
       'created_ms', old and old.created_ms or fmt(now), 'rev', fmt(call('HINCRBY', CFG, 'routes_rev', '1')))
  if not old then call('ZADD', index, fmt(now), name) end
  return {'OK', call('HGETALL', key)}
elseif op == 'delete' then
  local request_id, sha, ttl = arg(), arg(), arg()
  local made = done_by(t, request_id, sha)
  if made then return made end
  local name, etag = arg(), arg()
  local key = key_of(name)
  local old = record(key)
  if not old then return {'NOTFOUND', 'alias'} end
  if etag ~= '' and etag ~= old.rev then return {'STALE', old.rev} end
  remember(t, request_id, sha, ttl, name)
  local reply = {'OK', call('HGETALL', key)}
  list_name(old.adapter, name, false)
  call('DEL', key)
  call('ZREM', index, name)
  call('HINCRBY', CFG, 'routes_rev', '1')
  return reply
elseif op == 'get' then
  local fields = call('HGETALL', key_of(arg()))
  if #fields == 0 then return {'NOTFOUND', 'alias'} end
  return {'OK', fields}
elseif op == 'list' then
  local count, ms, last = math.min(num(arg()), 100), arg(), arg()
  local reply, rows = {'OK'}, call('ZREVRANGE', index, 0, -1, 'WITHSCORES')  -- MOST at most
  for i = 1, #rows, 2 do
    local behind = ms == '' or num(rows[i + 1]) < num(ms) or (num(rows[i + 1]) == num(ms) and rows[i] < last)
    if behind and #reply <= count then reply[#reply + 1] = {rows[i], fmt(num(rows[i + 1])), call('HGETALL', key_of(rows[i]))} end
  end
  return reply
end
return {'BADARG', 'unknown op'}
