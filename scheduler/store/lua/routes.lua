#!lua flags=allow-oom
-- Everything a gateway needs to route: workers that are up, adapters of every tenant.
-- ARGV: clock
-- Replies: OK routes_rev {worker record, …} {adapter record, …}
local workers, adapters = {}, {}
for _, w in ipairs(call('ZRANGE', P .. 'workers', 0, 999)) do
  workers[#workers + 1] = call('HGETALL', P .. 'worker:' .. w)
end
for _, t in ipairs(call('SMEMBERS', P .. 'tenants')) do
  for _, id in ipairs(call('ZREVRANGE', P .. 'tadapters:' .. t, 0, 999)) do
    adapters[#adapters + 1] = call('HGETALL', P .. 'adapter:' .. id)
  end
end
return {'OK', fmt(num(call('HGET', CFG, 'routes_rev'))), workers, adapters}
