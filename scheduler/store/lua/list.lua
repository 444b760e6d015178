#!lua flags=allow-oom
-- A page of a tenant's records, newest first. The cursor is the last row seen, so no row is skipped or repeated.
-- ARGV: clock, kind job|file|adapter, tenant, before_ms or '', before_id, count (≤ 100)
-- Replies: OK row…: all that there are, or `count` of them | MORE row…: at least one, and the next page goes on behind the last
--   each row: {id, created_ms, record {field, value, …}, spec-or-'', in_ring 0|1, of jobs lacks_model 0|1 (READY: lib.lua)}
local MOST_BYTES = 1048576  -- a record may have tens of kilobytes: a reply ends once it has so many
local kind, t, before_ms, before_id, count = arg(), arg(), arg(), arg(), math.min(num(arg()), 100)
local index = P .. 't' .. kind .. 's:' .. t
local reply, offset, bytes = {'OK'}, 0, 0
while #reply <= count and bytes < MOST_BYTES do
  local rows = call('ZREVRANGEBYSCORE', index, before_ms == '' and '+inf' or before_ms, '-inf', 'WITHSCORES', 'LIMIT',
                    fmt(offset), '100')
  if #rows == 0 then break end
  for i = 1, #rows, 2 do
    local id, ms = rows[i], rows[i + 1]
    local seen = before_ms ~= '' and num(ms) == num(before_ms) and id >= before_id
    local fits = #reply <= count and bytes < MOST_BYTES
    local fields = not seen and fits and call('HGETALL', P .. kind .. ':' .. id)
    if fields and #fields > 0 then  -- else the index names a record that is gone
      local row = {id, fmt(num(ms)), fields, '', '0'}
      if kind == 'job' then
        row[4] = call('GET', P .. 'spec:' .. id) or ''
        local pool = call('HGET', P .. 'job:' .. id, 'pool')
        row[5] = pool and call('ZSCORE', P .. 'ring:' .. pool, t) and '1' or '0'
        row[6] = lacks_model(id)
      end
      for _, part in ipairs(fields) do bytes = bytes + #part end
      bytes = bytes + #row[4]
      reply[#reply + 1] = row
    end
  end
  offset = offset + 100
end
if bytes >= MOST_BYTES and #reply <= count then reply[1] = 'MORE' end
return reply
