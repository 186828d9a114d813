#!lua flags=no-writes
-- List the coordinator's ledger from a scan cursor on: subid, number of the partition, and whether that partition does not know the
-- subscriber.
-- ARGV: now revision scan
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, pairs_of = redis.call('HSCAN', key.ledger, arg.scan, 'COUNT', 200), {}
for i = 1, #found[2], 2 do
  local subid, number = string.match(found[2][i], '^(%d+) (%d+)$')
  local shut = string.match(found[2][i + 1], ' ([01]) %d+$')
  if subid then pairs_of[#pairs_of + 1] = {subid, tonumber(number), tonumber(shut)} end
end
return respond.results({found[1], pairs_of})
