#!lua flags=allow-oom
-- API keys: key:<id> has the key's hash, never the key; tkeys:<tenant> lists them by time; keysha:<hash> tells whose hash it is.
-- `routes_rev` grows with every change that gateways must hear of.
-- ARGV: clock, op, and for
--   create: tenant of the caller, request_id or '', req_sha, ttl_ms, max_keys, then id, tenant, name, sha256, prefix, scopes,
--     expire_ms (0 = never)
--   ensure: id, tenant, name, sha256, prefix, scopes: a key that an operator has put into a file; there once, however often asked
--   revoke: tenant of the caller, request_id or '', req_sha, ttl_ms, id, 1 = of any tenant
--   used: count (≤ 500), then id, ms of each: the last use grows only
--   page: count (≤ 500), and tenant, ms, id of the last row of the page before ('' each: the first page)
-- Replies: create: OK id | QUOTA count max | IDTAKEN · ensure: OK id made 0|1 | REVOKED id · revoke: OK id | NOTFOUND
--   create, revoke: DUP id | CONFLICT id · used: OK
--   page: OK row…, each {id, ms, tenant, sha256, scopes, expire_ms, revoked_ms}; fewer rows than `count`: the last page
local op = arg()

local function write(id, t, name, hash, prefix, scopes, expire_ms)
  call('HSET', P .. 'key:' .. id, 'id', id, 'tenant', t, 'name', name, 'sha', hash, 'prefix', prefix, 'scopes', scopes,
       'expire_ms', expire_ms, 'created_ms', fmt(now))
  call('ZADD', P .. 'tkeys:' .. t, fmt(now), id)
  call('SET', P .. 'keysha:' .. hash, id)
  call('SADD', P .. 'tenants', t)
  call('HINCRBY', CFG, 'routes_rev', '1')
end

if op == 'create' then
  local caller, request_id, sha, ttl, max = arg(), arg(), arg(), arg(), num(arg())
  local made = done_by(caller, request_id, sha)
  if made then return made end
  local id, t, name, hash, prefix, scopes, expire_ms = arg(), arg(), arg(), arg(), arg(), arg(), arg()
  if call('EXISTS', P .. 'key:' .. id) == 1 or call('EXISTS', P .. 'keysha:' .. hash) == 1 then return {'IDTAKEN'} end
  local count = call('ZCARD', P .. 'tkeys:' .. t)
  if count >= max then
    -- The oldest that opens nothing any more makes room. Its hash stays, so that `ensure` never makes it anew.
    local over
    for _, old in ipairs(call('ZRANGE', P .. 'tkeys:' .. t, '0', '-1')) do
      local k = call('HMGET', P .. 'key:' .. old, 'revoked_ms', 'expire_ms')
      if k[1] or (num(k[2]) > 0 and num(k[2]) <= now) then
        over = old
        break
      end
    end
    if not over then return {'QUOTA', fmt(count), fmt(max)} end
    call('ZREM', P .. 'tkeys:' .. t, over)
    call('DEL', P .. 'key:' .. over)
  end
  write(id, t, name, hash, prefix, scopes, expire_ms)
  remember(caller, request_id, sha, ttl, id)
  return {'OK', id}
elseif op == 'ensure' then
  local id, t, name, hash, prefix, scopes = arg(), arg(), arg(), arg(), arg(), arg()
  local known = call('GET', P .. 'keysha:' .. hash)
  if known then
    local gone = call('EXISTS', P .. 'key:' .. known) == 0
    if gone or call('HGET', P .. 'key:' .. known, 'revoked_ms') then return {'REVOKED', known} end
    return {'OK', known, '0'}
  end
  if call('EXISTS', P .. 'key:' .. id) == 1 then return {'IDTAKEN'} end
  write(id, t, name, hash, prefix, scopes, '0')
  return {'OK', id, '1'}
elseif op == 'revoke' then
  local caller, request_id, sha, ttl, id, of_any = arg(), arg(), arg(), arg(), arg(), arg()
  local made = done_by(caller, request_id, sha)
  if made then return made end
  local key = P .. 'key:' .. id
  local t = call('HGET', key, 'tenant')
  if not t or (t ~= caller and of_any ~= '1') then return {'NOTFOUND'} end
  remember(caller, request_id, sha, ttl, id)
  if call('HSETNX', key, 'revoked_ms', fmt(now)) == 1 then call('HINCRBY', CFG, 'routes_rev', '1') end
  return {'OK', id}
elseif op == 'used' then
  for _ = 1, math.min(num(arg()), 500) do
    local id, ms = arg(), arg()
    local key = P .. 'key:' .. id
    if call('EXISTS', key) == 1 and num(call('HGET', key, 'used_ms')) < num(ms) then call('HSET', key, 'used_ms', ms) end
  end
  return {'OK'}
elseif op == 'page' then
  local count, from, ms, id = math.min(num(arg()), 500), arg(), arg(), arg()
  local reply, tenants = {'OK'}, call('SMEMBERS', P .. 'tenants')
  table.sort(tenants)
  for _, t in ipairs(tenants) do
    local left = count - (#reply - 1)
    if t >= from and left > 0 then
      local first = t == from
      for _, row in ipairs(page_after(P .. 'tkeys:' .. t, first and ms or '', first and id or '', left)) do
        local k = call('HMGET', P .. 'key:' .. row[1], 'sha', 'scopes', 'expire_ms', 'revoked_ms')
        reply[#reply + 1] = {row[1], row[2], t, k[1] or '', k[2] or '', k[3] or '0', k[4] or '0'}
      end
    end
  end
  return reply
end
return {'BADARG', 'unknown op'}
