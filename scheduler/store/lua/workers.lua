#!lua flags=allow-oom
-- Workers that are up or draining, with what they are at: a page in the order of their ids, or one of them.
-- ARGV: clock, id of the last one before or '', count (≤ 100), the id of the only one that is wanted or ''
-- Replies: OK row… each {id, ms since its last heartbeat, record {field, value, …}, attempts {{job, tenant}, …}}; fewer than
--   `count`: there are no more
local after, count, only = arg(), math.min(num(arg()), 100), arg()
local ids = only == '' and call('ZRANGE', P .. 'workers', '0', '999') or {only}
table.sort(ids)

-- The jobs of a worker's last claims that it still runs.
local function attempts_of(id, record)
  local attempts, seen = {}, {}
  for i = 1, #record, 2 do
    local job_id = string.sub(record[i], 1, 5) == 'cjob:' and record[i + 1]
    if job_id and not seen[job_id] then
      seen[job_id] = true
      local j = call('HMGET', P .. 'job:' .. job_id, 'state', 'worker', 'tenant')
      if j[2] == id and (j[1] == 'RUNNING' or j[1] == 'CANCELLING') then attempts[#attempts + 1] = {job_id, j[3]} end
    end
  end
  return attempts
end

local reply = {'OK'}
for _, id in ipairs(ids) do
  local beat = id > after and #reply <= count and call('ZSCORE', P .. 'workers', id)
  local record = beat and call('HGETALL', P .. 'worker:' .. id) or {}
  if #record > 0 then
    reply[#reply + 1] = {id, fmt(math.max(0, now - num(beat))), record, attempts_of(id, record)}
  end
end
return reply
