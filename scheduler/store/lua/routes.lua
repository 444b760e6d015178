#!lua flags=allow-oom
-- What a gateway needs to route, in pages: workers that are up or draining, adapters and aliases of every tenant.
-- ARGV: clock, op, count (≤ 500), and the last row of the page before ('' each: the first page)
--   workers: ms, id
--   adapters, aliases: tenant, ms, id
-- Replies: OK routes_rev row…; fewer rows than `count`: the last page
--   workers: {id, ms, record {field, value, …}} · adapters: {id, ms, tenant, uri, sha, disabled}
--   aliases: {name, ms, tenant, uri, sha, disabled, adapter}: the adapter is that of this moment, wherever adapters were read
local op, count = arg(), math.min(num(arg()), 500)
local reply = {'OK', fmt(num(call('HGET', CFG, 'routes_rev')))}
if op == 'workers' then
  local ms, id = arg(), arg()
  for _, row in ipairs(page_after(P .. 'workers', ms, id, count)) do
    reply[#reply + 1] = {row[1], row[2], call('HGETALL', P .. 'worker:' .. row[1])}
  end
elseif op == 'adapters' or op == 'aliases' then
  local from, ms, id = arg(), arg(), arg()
  local tenants = call('SMEMBERS', P .. 'tenants')
  table.sort(tenants)
  for _, t in ipairs(tenants) do
    local left = count - (#reply - 2)
    if t >= from and left > 0 then
      local first = t == from
      for _, row in ipairs(page_after(P .. 't' .. op .. ':' .. t, first and ms or '', first and id or '', left)) do
        local id = op == 'adapters' and row[1] or call('HGET', P .. 'alias:' .. t .. ':' .. row[1], 'adapter') or ''
        local a = call('HMGET', P .. 'adapter:' .. id, 'uri', 'sha', 'disabled')
        reply[#reply + 1] = {row[1], row[2], t, a[1] or '', a[2] or '', a[3] or '', op == 'aliases' and id or nil}
      end
    end
  end
else
  return {'BADARG', 'unknown op'}
end
return reply
