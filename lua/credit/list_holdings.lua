#!lua flags=no-writes
-- List what subscribers hold in a partition whose credit another one coordinates: those of the rows, or without rows a page of all with
-- locks, after the subid `after`. Returns subid, held, last grant and pool of each, the last subid (empty: at the end), and the version.
-- ARGV: now revision after | subid
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local PAGE, found, past = 200, {}, arg.after

local function tell(subid)
  local subscriber = subscriptions.get(subid)
  if not partition_owner.is(subid) then
    found[#found + 1] = {subid, credit.lock_count(subid), grants.last(subid), subscriber and subscriber.pool or ''}
  end
end

for _, row in ipairs(rows) do tell(row.subid) end
local count = #rows > 0 and PAGE or 0
while count < PAGE do
  local least = past == '' and '-inf' or '(' .. past
  local place = redis.call('ZRANGEBYSCORE', key.locks_by_subscriber, least, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not place[1] then break end
  past, count = string.format('%.0f', tonumber(place[2])), count + 1
  tell(past)
end
return respond.results({found, (#rows == 0 and count == PAGE) and past or '', call.partition_token})
