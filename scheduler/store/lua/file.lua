#!lua flags=allow-oom
-- Records of uploaded files. The bytes lie in the artefact store under their SHA-256; `blob:<sha>` counts who names them.
-- ARGV: clock, op, tenant, and for
--   put, delete: request_id or '', req_sha, ttl_ms, then
--     put: max_files, id, number of fields, field, value, …  (sha256, state, bytes, … opaque here)
--     delete: id
--   bytes: sha256, there 0|1 (no tenant: every record that names them; LOST while they are gone, then as it was before),
--     cursor ('0' first, then as the last reply had it): a few hundred records at a time
-- Replies: put: OK | QUOTA count max | IDTAKEN · delete: OK last 0|1 (no other record names the bytes) sha256 | NOTFOUND |
--   INUSE job · both: DUP id | CONFLICT id · bytes: OK changed cursor ('0': all were seen)
local op, t = arg(), arg()
if op == 'bytes' then
  local sha256, there, cursor_in_set, changed = arg(), arg(), arg(), 0
  local page = call('SSCAN', P .. 'blob:' .. sha256, cursor_in_set, 'COUNT', '200')
  for _, id in ipairs(page[2]) do
    local key = P .. 'file:' .. id
    local state, before = unpack(call('HMGET', key, 'state', 'before'))
    if there == '0' and state and state ~= 'LOST' then
      call('HSET', key, 'state', 'LOST', 'before', state)
      changed = changed + 1
    elseif there == '1' and state == 'LOST' then
      call('HSET', key, 'state', before)
      call('HDEL', key, 'before')
      changed = changed + 1
    end
  end
  return {'OK', fmt(changed), page[1]}
end

local request_id, sha, ttl = arg(), arg(), arg()
local made = done_by(t, request_id, sha)
if made then return made end
if op == 'delete' then
  local id = arg()
  local key = P .. 'file:' .. id
  local f = record(key)
  if not f or f.tenant ~= t then return {'NOTFOUND'} end
  local user = call('ZRANGE', P .. 'fileuse:' .. id, 0, 0)[1]
  if user then return {'INUSE', user} end
  call('DEL', key)
  call('ZREM', P .. 'tfiles:' .. t, id)
  call('SREM', P .. 'blob:' .. f.sha256, id)
  remember(t, request_id, sha, ttl, id)
  return {'OK', call('SCARD', P .. 'blob:' .. f.sha256) == 0 and '1' or '0', f.sha256}
end

if op ~= 'put' then return {'BADARG', 'unknown op'} end

local max, id, n = num(arg()), arg(), num(arg())
local key, fields, sha256 = P .. 'file:' .. id, {'id', id, 'tenant', t, 'created_ms', fmt(now)}, nil
for _ = 1, n do
  local field, value = arg(), arg()
  if field == 'sha256' then sha256 = value end
  fields[#fields + 1], fields[#fields + 2] = field, value
end
if not sha256 then return {'BADARG', 'sha256 missing'} end
if call('EXISTS', key) == 1 then return {'IDTAKEN'} end
local count = call('ZCARD', P .. 'tfiles:' .. t)
if count >= max then return {'QUOTA', fmt(count), fmt(max)} end
call('HSET', key, unpack(fields))
call('ZADD', P .. 'tfiles:' .. t, fmt(now), id)
call('SADD', P .. 'blob:' .. sha256, id)
call('SADD', P .. 'tenants', t)
remember(t, request_id, sha, ttl, id)
return {'OK'}
