#!lua flags=allow-oom
-- Receive credit reports of partitions at a coordinator, and grant them the credit that they want and that is free. `holdings` has
-- `number subid version held last shut full` each; `wants` has `number version wanted` and the subids that want it. `registered`, a subid
-- and a number, ends that registration: its credit may be used. `gone` lists deleted partitions, with a subid each. Returns the credit
-- granted to the partition of the row.
-- ARGV: now revision frontend sent number retry | holdings wants registered gone
-- RETURNS: ok stale gone deleted | ok not-subscribed
local refusal = partition.load()
if refusal then return refusal end
local results = {}

local function take_holdings(text)
  for number, subid, version, held, last, shut, full in
    string.gmatch(text, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01])') do
    ledger.report(number, subid, {version = tonumber(version), held = tonumber(held), last = tonumber(last),
      shut = shut % 2 == 1, unused = math.floor(shut / 2), full = full == '1'})
    lock_end.touch(subid)
  end
end

for i, row in ipairs(rows) do
  take_holdings(row.holdings)
  for number, subid in string.gmatch(row.gone, '(%d+) (%d+)') do
    ledger.drop(number, subid)
    lock_end.touch(subid)
  end
  local number, version, wanted, whom = string.match(row.wants, '^(%d+) (%d+) (%d+) (.*)$')
  if number then coordinator.want(number, tonumber(version), tonumber(wanted), whom) end
  local subid, registration = string.match(row.registered, '^(%d+) (%d+)$')
  local known = subid and usage.read(subid)
  if known and known.registering == registration then
    known.registering = '0'
    usage.write(subid, known)
    lock_end.touch(subid)
  end
  results[i] = {(not subid or subscriptions.get(subid)) and 'ok' or 'not-subscribed', 0, number}
end
local reply = respond.make(results, 0)
for _, result in ipairs(results) do
  for _, made in ipairs(call.coordinator_made) do
    if made[1] == result[3] then result[2] = result[2] + made[4] end
  end
  result[3] = nil
end
return reply
