-- Which subscriptions a JID has in a partition. The first of its subids is made from the JID; where it has had several, `subids` has them:
-- each -> all, the first one first. A queue has others for subscribers of collections. The text `subids` names those of a sender's full JID
-- and bare JID.
local subscription_ids = {MOST = 32, COLLECTED = 2 ^ 51}

-- Returns all subids that one JID has had, given one of them.
function subscription_ids.family(subid)
  local line, found = call.partition_before.multi and redis.call('HGET', key.subids, subid), {}
  for each in string.gmatch(line or subid, '%d+') do found[#found + 1] = each end
  return found
end

-- Adds a subid to those of a JID, given one of these.
function subscription_ids.add(subid, another)
  local all, fields = subscription_ids.family(subid), {}
  all[#all + 1] = another
  local line = table.concat(all, ' ')
  for _, each in ipairs(all) do fields[#fields + 1], fields[#fields + 2] = each, line end
  redis.call('HSET', key.subids, unpack(fields))
end

-- Forgets the subids of a JID, given one of them, if it has no subscription and no lock left.
function subscription_ids.tidy(subid)
  local all = subscription_ids.family(subid)
  if #all == 1 or #subscription_ids.existing(subid) > 0 then return end
  for _, each in ipairs(all) do
    if credit.lock_count(each) > 0 then return end
  end
  redis.call('HDEL', key.subids, unpack(all))
end

-- Notes that a collection's subscriber has a subid other than its JID's first one.
function subscription_ids.note(first, subid)
  if first == subid then return end
  partition.turn_on('multi')
  if redis.call('HEXISTS', key.subids, subid) == 0 then subscription_ids.add(first, subid) end
end

-- Returns the subid under which a queue has the locks of a collection's subscriber, or turns it back.
function subscription_ids.collected(subid)
  return string.format('%.0f', (tonumber(subid) + subscription_ids.COLLECTED) % (2 * subscription_ids.COLLECTED))
end

-- Returns all subids of these JIDs, in the queue and through collections.
function subscription_ids.all(subids)
  local found = {}
  for subid in string.gmatch(subids, '%d+') do
    if found[1] ~= subid then
      for _, each in ipairs(subscription_ids.family(subid)) do found[#found + 1] = each end
      if call.partition_before.referenced then
        for _, each in ipairs(subscription_ids.family(subscription_ids.collected(subid))) do found[#found + 1] = each end
      end
    end
  end
  -- The caller looks for each of them.
  budget.spend(#found / 8)
  return found
end

-- Whether a subscription has one of a sender's subids, in the queue or through a collection.
function subscription_ids.covers(subids, subid)
  for _, each in ipairs(subscription_ids.all(subids)) do
    if each == subid then return true end
  end
  return false
end

-- Returns the subids in use of a JID.
function subscription_ids.existing(subid)
  local all, found = subscription_ids.family(subid), {}
  local lines = redis.call('HMGET', key.subscribers, unpack(all))
  for i, each in ipairs(all) do found[#found + 1] = lines[i] and each or nil end
  return found
end

-- Returns a subid for one more subscription of a JID, one that it has had if it can be; nil if it has as many as it may.
function subscription_ids.another(subid)
  local all = subscription_ids.family(subid)
  local lines = redis.call('HMGET', key.subscribers, unpack(all))
  for i, each in ipairs(all) do
    if not lines[i] then return each end
  end
  if #all == subscription_ids.MOST then return nil end
  partition.turn_on('multi')
  local drawn = string.format('%d', partition.next_number())
  subscription_ids.add(subid, drawn)
  return drawn
end

-- Returns the subid `named`, or else the only one; nil and the refusal if `named` is none of them, or there are several (P12).
function subscription_ids.choose(subid, named)
  local those = subscription_ids.existing(subid)
  if #those == 0 and (named == '' or named == subid) then return nil, {'not-subscribed'} end
  if named == '' and #those > 1 then return nil, {'subid-required'} end
  for _, each in ipairs(those) do
    if named == '' or each == named then return each end
  end
  return nil, {'subid-invalid'}
end
