#!lua flags=allow-oom
-- One record of a tenant, whole.
-- ARGV: clock, kind job|file|adapter, tenant, id
-- Replies: OK record {field, value, …} spec-or-'' place-or-'' (READY: place in the pool's queue, from 1)
--     in_ring 0|1 users {job, …} (of a file) lacks_model 0|1 (READY: lib.lua) | NOTFOUND
local kind, t, id = arg(), arg(), arg()
local key = P .. kind .. ':' .. id
if call('HGET', key, 'tenant') ~= t then return {'NOTFOUND'} end
local reply = {'OK', call('HGETALL', key), '', '', '0', {}, '0'}
if kind == 'job' then
  local j = job(id)
  reply[3] = call('GET', P .. 'spec:' .. id) or ''
  if j.state == 'READY' then
    local rank = call('ZRANK', P .. 'ready:' .. j.pool, id)
    reply[4] = rank and fmt(rank + 1) or ''
    reply[5] = call('ZSCORE', P .. 'ring:' .. j.pool, t) and '1' or '0'
    reply[7] = lacks_model(id)
  end
elseif kind == 'file' then
  reply[6] = call('ZRANGE', P .. 'fileuse:' .. id, 0, 19)
end
return reply
