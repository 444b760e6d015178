#!lua flags=allow-oom
-- What tenants have used, by UTC day: usage:<tenant>:<day> (days since 1970) has sums, kept for 400 days. Attempts' seconds and
-- trained tokens are added by the scripts that end them (lib.lua, count_use); what gateways have counted comes here.
-- ARGV: clock, op, and for
--   add: id of the report, number of rows (≤ 500), then tenant, prompt tokens, generated tokens, generations of each. A report
--     counts once, however often it is sent within an hour
--   days: tenant, number of days (≤ 400) with today as the last
-- Replies: add: OK | DUP · days: OK row…, newest first, days with use alone, each {day, record {field, value, …}}
local op = arg()
if op == 'add' then
  local id, rows = arg(), math.min(num(arg()), 500)
  if not call('SET', P .. 'usereport:' .. id, '1', 'NX', 'PX', '3600000') then return {'DUP'} end
  for _ = 1, rows do
    local t, prompt, generated, generations = arg(), num(arg()), num(arg()), num(arg())
    count_use(t, 'prompt_tokens', prompt)
    count_use(t, 'generated_tokens', generated)
    count_use(t, 'generations', generations)
  end
  return {'OK'}
elseif op == 'days' then
  local t, count, today = arg(), math.min(num(arg()), 400), math.floor(now / DAY_MS)
  local reply = {'OK'}
  for day = today, today - count + 1, -1 do
    local found = call('HGETALL', P .. 'usage:' .. t .. ':' .. fmt(day))
    if #found > 0 then reply[#reply + 1] = {fmt(day), found} end
  end
  return reply
end
return {'BADARG', 'unknown op'}
