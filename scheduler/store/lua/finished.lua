#!lua flags=allow-oom
-- A page of the terminal jobs of all tenants, oldest end first, for the archiver and the janitor.
-- ARGV: clock, finished_ms and id of the last row before ('' each: the first page), count (≤ 100)
-- Replies: OK row… each {id, finished_ms, tenant, kind, seq, archived, purging 0|1}; fewer than `count`: the last page
local ms, id, count = arg(), arg(), math.min(num(arg()), 100)
local reply = {'OK'}
for _, row in ipairs(page_after(P .. 'done', ms, id, count)) do
  local f = call('HMGET', P .. 'job:' .. row[1], 'tenant', 'kind', 'seq', 'archived', 'purging')
  -- A member without a job has no tenant; it keeps its place in the page, or the caller would take it for the last.
  reply[#reply + 1] = {row[1], row[2], f[1] or '', f[2] or '', f[3] or '0', f[4] or '0', f[5] and '1' or '0'}
end
return reply
