-- Items that are published with the acknowledgement of another one, until they are in their nodes. `outbox_records` has each of them, as the
-- frontend has written it and after the time in ms, under the name of its entry, `publish/POSITION/NUMBER`: the position of the item that
-- was acknowledged, which happens once.
-- Nobody waits for them, so a node that takes none would let them grow without a bound: MOST is that of all entries of the outbox.
local outbox_publishes = {MOST = 10000}

function outbox_publishes.has_room()
  return redis.call('ZCARD', key.outbox) < outbox_publishes.MOST
end

-- Adds items: their lengths, separated by blanks, a semicolon, and the items.
function outbox_publishes.add(position, packed)
  local lengths, at = string.match(packed, '^([%d ]*);()')
  local number = 0
  for length in string.gmatch(lengths, '%d+') do
    local entry, ends = 'publish/' .. position .. '/' .. number, at + length
    redis.call('HSET', key.outbox_records, entry, call.partition_stamp .. ' ' .. string.sub(packed, at, ends - 1))
    outbox.put(entry)
    budget.spend(1 + length / budget.PAGE)
    number, at = number + 1, ends
  end
end
