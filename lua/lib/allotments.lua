-- Allotments on their way: credit is taken out of one partition and put into another, each in a script of its own.
-- NEEDS: turns
-- LAZY: where credit lies in several partitions
--- @include partition subscriptions credit shares owner selectors
local allotments = {MOST = 32, POOLED = 200}

-- Takes out up to `most` of what is free; gives how much, and the count that it belongs to.
function allotments.withdraw(subscriber, most)
  local share = shares.read(subscriber)
  local amount = math.min(most, subscriber.limit - credit.held(subscriber.subid))
  if amount <= 0 or share.counting then return 0, share.born end
  if shares.banks(subscriber) then
    share.lent = share.lent + amount
    shares.write(subscriber, share)
  end
  subscriber.limit = subscriber.limit - amount
  subscriptions.put(subscriber)
  credit.settle(subscriber.subid)
  return amount, share.born
end

-- Takes out all that is free, and lets the rest end with its locks: until the next count nothing takes their places.
function allotments.recall(subscriber)
  local amount, born = allotments.withdraw(subscriber, subscriber.limit)
  subscriber.limit = 0
  subscriptions.put(subscriber)
  return amount, born
end

-- Puts in what was taken out elsewhere. False when a later count has begun here: it has not seen this, and gives it back. Nil
-- when this one has not come here yet, or nobody is seated: only another count finds it.
function allotments.deposit(subscriber, born, amount)
  local share = subscriber and shares.read(subscriber)
  if not share or tonumber(share.born) < tonumber(born) then return nil end
  if share.born ~= born then return false end
  subscriber.limit = subscriber.limit + amount
  if shares.banks(subscriber) then
    share.lent = math.max(0, share.lent - amount)
    subscriber.limit = math.max(0, math.min(subscriber.limit, share.total - share.lent))
    shares.write(subscriber, share)
  end
  subscriptions.put(subscriber)
  credit.settle(subscriber.subid)
  return true
end

-- Who is asked for credit: those with some that `whom` names, where `*` is all who take whatever comes; without it all.
local function asked(whom)
  local count = partition.pools and allotments.POOLED or allotments.MOST
  if whom == '' then return redis.call('ZRANGE', key.turns, 0, count - 1) end
  local found = {}
  for name in string.gmatch(whom, '%d+') do
    if redis.call('ZSCORE', key.turns, name) then found[#found + 1] = name end
  end
  local any = string.find(whom, '*', 1, true) and redis.call('ZRANGE', key.turns, 0, count + selectors.MOST - 1) or {}
  for _, subid in ipairs(any) do
    if not selectors.said(subid) then found[#found + 1] = subid end
  end
  return found
end

-- Takes up to `most` free credit of a pool, or of the node's own if that is empty, from the least recently served on.
function allotments.gather(to, most, pool, whom)
  local gifts, who = {}, owner.get()
  for _, subid in ipairs(asked(whom)) do
    local amount, born, subscriber = 0, nil, subscriptions.get(subid)
    -- An owner's credit lies where it owns, and nowhere else.
    local theirs = (subscriber.pool or '') == pool and not (who and who.subid == subid)
    if theirs then amount, born = allotments.withdraw(subscriber, most) end
    if amount > 0 then gifts[#gifts + 1] = {to, subid, born, amount, pool} end
    most = most - amount
    if most <= 0 then return gifts end
  end
  return gifts
end
