-- How ownership ends by its lease or by another's attach, and how the locks from before an attach end.
local ownership = {CHUNK = 300}

-- Frees a partition whose owner has not been heard of for the time of its lease (EX16).
function ownership.lapse()
  local who = owner.get()
  if not who or who.lease > call.partition_now then return end
  leave.remove(who.subid, false, 'lapsed')
  leave.release(who.subid, 'released', 'lapsed')
end

-- Ends locks from before the owner's attach, a bounded part at a time: until all have ended it is handed nothing, so that
-- what is found locked is one of them. The fence refuses those that are left. Whoever shared the partition is told of each of
-- its locks, whoever owned it has been told of all at once.
function ownership.clear(reason)
  local who, told = owner.get(), {}
  for _, each in ipairs(call.disown_notices) do told[each[2]] = told[each[2]] or each[1] == 'lost' end
  local members, places = redis.call('ZRANGE', key.held, 0, ownership.CHUNK - 1), {}
  for i, member in ipairs(members) do places[i] = holdings.position(member) end
  for i, flight in ipairs(flights.at(places)) do
    if i > 1 and budget.exhausted() then break end
    if flight then
      ending.release(flight, 'released', {reason = reason})
      if not told[flight.jid] then
        call.disown_notices[#call.disown_notices + 1] = {'ended', flight.jid, flight.item, tonumber(flight.token),
          pools.told(flight.subid)}
      end
    else
      writes.add('ZREM', key.held, members[i])
    end
  end
  writes.flush()
  who.clearing = redis.call('EXISTS', key.held) == 1
  owner.put(who)
end
