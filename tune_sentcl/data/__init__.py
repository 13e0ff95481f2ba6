"""What trials read: sentences, labels and gold scores, checked before anything is spent."""
